/* What a mailbox promises, seen from one thread; several are in tests/threads. */
#include "daemon/runtime/mailbox.h"

#include <criterion/criterion.h>
#include <poll.h>

static int is_readable(const struct mailbox *mailbox)
{
	struct pollfd item = { .fd = mailbox_fd(mailbox), .events = POLLIN };
	return poll(&item, 1, 0);
}

Test(mailbox, gives_letters_in_the_order_they_came)
{
	struct mailbox *mailbox;
	struct letter letters[3];
	cr_assert_eq(mailbox_new(&mailbox), 0);
	cr_assert_null(mailbox_take(mailbox));
	for (int i = 0; i < 3; i++) {
		mailbox_post(mailbox, &letters[i]);
	}
	for (int i = 0; i < 3; i++) {
		cr_assert_eq(mailbox_take(mailbox), &letters[i]);
	}
	cr_assert_null(mailbox_take(mailbox));
	mailbox_free(mailbox);
	mailbox_free(NULL);
}

Test(mailbox, is_readable_exactly_while_it_is_not_empty)
{
	struct mailbox *mailbox;
	struct letter letters[2];
	cr_assert_eq(mailbox_new(&mailbox), 0);
	for (int round = 0; round < 2; round++) {
		cr_assert_eq(is_readable(mailbox), 0);
		mailbox_post(mailbox, &letters[0]);
		cr_assert_eq(is_readable(mailbox), 1);
		mailbox_post(mailbox, &letters[1]);
		mailbox_take(mailbox);
		cr_assert_eq(is_readable(mailbox), 1);
		mailbox_take(mailbox);
		cr_assert_eq(is_readable(mailbox), 0);
		cr_assert_null(mailbox_take(mailbox));
	}
	mailbox_free(mailbox);
}

Test(mailbox, takes_a_letter_back_that_was_taken_from_it)
{
	struct mailbox *mailbox;
	struct letter first, second;
	cr_assert_eq(mailbox_new(&mailbox), 0);
	mailbox_post(mailbox, &first);
	mailbox_post(mailbox, &second);
	mailbox_post(mailbox, mailbox_take(mailbox));
	cr_assert_eq(mailbox_take(mailbox), &second);
	cr_assert_eq(mailbox_take(mailbox), &first);
	mailbox_free(mailbox);
}
