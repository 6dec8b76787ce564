/*
 * A mailbox: how two threads talk. A locked list of letters and an eventfd that is readable while the list is not
 * empty.
 *
 * Any thread may post; one thread, the owner, takes. A letter is a struct that embeds struct letter as its first
 * member; posting gives it away. Posting never blocks and never fails.
 */
#ifndef FSDPD_RUNTIME_MAILBOX_H
#define FSDPD_RUNTIME_MAILBOX_H

struct letter {
	struct letter *next;
};

struct mailbox;

int mailbox_new(struct mailbox **ret_mailbox); /* 0, -ENOMEM, -EMFILE */
void mailbox_free(struct mailbox *mailbox);    /* must be empty; takes NULL */

int mailbox_fd(const struct mailbox *mailbox); /* readable while there is something to take */
void mailbox_post(struct mailbox *mailbox, struct letter *letter);
struct letter *mailbox_take(struct mailbox *mailbox); /* the oldest, or NULL when empty */

#endif
