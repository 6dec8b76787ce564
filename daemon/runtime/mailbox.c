/*
 * Mailboxes. Owns a list and an eventfd; the letters belong to whoever made them. The eventfd holds 1 exactly while
 * the list is not empty: it is written and read under the lock, only when the list becomes filled or empty, so that a
 * burst costs one wake-up.
 *
 * The length of the list has no limit of its own: a letter is memory of its sender, and senders are bounded (a
 * command answers a worker's request, a job is embedded in a bounded piece of work).
 */
#include "daemon/runtime/mailbox.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct mailbox {
	pthread_mutex_t lock;
	struct letter *first;
	struct letter *last;
	int fd;
};

int mailbox_new(struct mailbox **ret_mailbox)
{
	struct mailbox *mailbox = calloc(1, sizeof(*mailbox));
	if (!mailbox) {
		return -ENOMEM;
	}
	mailbox->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (mailbox->fd < 0) {
		int code = -errno;
		free(mailbox);
		return code;
	}
	pthread_mutex_init(&mailbox->lock, NULL);
	*ret_mailbox = mailbox;
	return 0;
}

void mailbox_free(struct mailbox *mailbox)
{
	if (!mailbox) {
		return;
	}
	/* The lock: the last poster may still be on its way out of mailbox_post. */
	pthread_mutex_lock(&mailbox->lock);
	assert(!mailbox->first);
	pthread_mutex_unlock(&mailbox->lock);
	pthread_mutex_destroy(&mailbox->lock);
	close(mailbox->fd);
	free(mailbox);
}

int mailbox_fd(const struct mailbox *mailbox)
{
	return mailbox->fd;
}

void mailbox_post(struct mailbox *mailbox, struct letter *letter)
{
	letter->next = NULL;
	pthread_mutex_lock(&mailbox->lock);
	if (mailbox->last) {
		mailbox->last->next = letter;
	} else {
		mailbox->first = letter;
		/* It was 0: it cannot be full, and a write that cannot wait is not interrupted. */
		ssize_t n = write(mailbox->fd, &(uint64_t){ 1 }, sizeof(uint64_t));
		assert(n == sizeof(uint64_t));
	}
	mailbox->last = letter;
	pthread_mutex_unlock(&mailbox->lock);
}

struct letter *mailbox_take(struct mailbox *mailbox)
{
	pthread_mutex_lock(&mailbox->lock);
	struct letter *letter = mailbox->first;
	if (letter) {
		mailbox->first = letter->next;
		letter->next = NULL;
		if (!mailbox->first) {
			mailbox->last = NULL;
			uint64_t value;
			ssize_t n = read(mailbox->fd, &value, sizeof(value));
			assert(n == sizeof(value) && value == 1);
		}
	}
	pthread_mutex_unlock(&mailbox->lock);
	return letter;
}
