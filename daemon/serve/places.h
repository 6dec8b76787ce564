/* Requests for the description of a sealed model. One thread (the loop) runs them. Private to this folder. */
#ifndef FSDPD_SERVE_PLACES_H
#define FSDPD_SERVE_PLACES_H

struct request;
struct worker_message;

void places_serve(struct request *request, const struct worker_message *message);      /* WORKER_PLACES */
void places_serve_unit(struct request *request, const struct worker_message *message); /* WORKER_UNITS */

#endif
