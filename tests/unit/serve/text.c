/* Whatever a text is made of, the codecs take it. */
#include <criterion/criterion.h>
#include <string.h>

#include "daemon/serve/text.h"

Test(text, a_text_is_copied)
{
	char text[8];

	text_copy(text, sizeof(text), "abc");
	cr_assert_str_eq(text, "abc");
	text_copy(text, sizeof(text), NULL);
	cr_assert_str_eq(text, "");
}

Test(text, it_is_cut_between_characters)
{
	char text[4];

	text_copy(text, sizeof(text), "ab\xc3\xa4z");
	cr_assert_str_eq(text, "ab");
	text_copy(text, sizeof(text), "a\xc3\xa4z");
	cr_assert_str_eq(text, "a\xc3\xa4");
	text_print(text, sizeof(text), "%s%s", "ab", "\xe2\x82\xac");
	cr_assert_str_eq(text, "ab");
}

Test(text, bytes_that_are_no_text_become_question_marks)
{
	char text[16];

	text_copy(text, sizeof(text),
		  "a\xff"
		  "b\nc");
	cr_assert_str_eq(text, "a?b?c");
	text_copy(text, sizeof(text), "a\xc3");
	cr_assert_str_eq(text, "a?");
}
