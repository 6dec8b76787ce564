/* Which bytes are a text. */
#include "proto/wire_text.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "fsdp/error.h"

#define PREFIX(literal) wire_text_prefix(literal, sizeof(literal) - 1)

Test(wire_text, characters_of_every_length_are_texts)
{
	cr_assert_eq(PREFIX(""), 0);
	cr_assert_eq(wire_text_prefix(NULL, 0), 0);
	cr_assert_eq(PREFIX(" ~"), 2);
	cr_assert_eq(PREFIX("\xc2\xa0\xdf\xbf"), 4);
	cr_assert_eq(PREFIX("\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf"), 12);
	cr_assert_eq(PREFIX("\xf0\x90\x80\x80\xf4\x8f\xbf\xbf"), 8);
}

Test(wire_text, control_characters_end_a_text)
{
	for (char c = 0; c < 0x20; c++)
		cr_assert_eq(wire_text_prefix((char[]){ 'a', c, 'b' }, 3), 1, "control character %d", c);
	cr_assert_eq(PREFIX("a\x7f"), 1);
	cr_assert_eq(PREFIX("a\xc2\x80"), 1);
	cr_assert_eq(PREFIX("a\xc2\x9f"), 1);
}

Test(wire_text, what_is_no_character_ends_a_text)
{
	cr_assert_eq(PREFIX("a\x80"), 1, "a continuation alone");
	cr_assert_eq(PREFIX("a\xc0\xaf"), 1, "overlong of two");
	cr_assert_eq(PREFIX("a\xc1\xbf"), 1, "overlong of two");
	cr_assert_eq(PREFIX("a\xe0\x9f\xbf"), 1, "overlong of three");
	cr_assert_eq(PREFIX("a\xf0\x8f\xbf\xbf"), 1, "overlong of four");
	cr_assert_eq(PREFIX("a\xed\xa0\x80"), 1, "a surrogate");
	cr_assert_eq(PREFIX("a\xf4\x90\x80\x80"), 1, "beyond the last");
	cr_assert_eq(PREFIX("a\xf5\x80\x80\x80"), 1, "beyond the last");
	cr_assert_eq(PREFIX("a\xff"), 1);
	cr_assert_eq(PREFIX("a\xe6\xbc\x41"), 1, "a third byte that is none");
	cr_assert_eq(PREFIX("a\xf0\x9f\x99\x41"), 1, "a fourth byte that is none");
}

Test(wire_text, a_character_that_is_cut_is_not_read_beyond)
{
	const char *whole[] = { "\xc3\xa9", "\xe6\xbc\xa2", "\xf0\x9f\x99\x82" };
	for (size_t i = 0; i < 3; i++)
		for (size_t cut = 1; cut < strlen(whole[i]); cut++) {
			char *block = malloc(cut);
			memcpy(block, whole[i], cut);
			cr_assert_eq(wire_text_prefix(block, cut), 0);
			free(block);
		}
}

Test(wire_text, a_text_that_fits_with_its_NUL_is_copied)
{
	char array[4] = { 'x', 'x', 'x', 'x' };
	cr_assert_eq(wire_text_read("abc", 3, array, 4), 0);
	cr_assert_str_eq(array, "abc");
	cr_assert_eq(wire_text_read("abcd", 4, array, 4), FSDP_E_PROTOCOL);
	cr_assert_str_eq(array, "abc");
	cr_assert_eq(wire_text_read("a\0", 2, array, 4), FSDP_E_PROTOCOL);
	cr_assert_str_eq(array, "abc");
	cr_assert_eq(wire_text_read(NULL, 0, array, 4), 0);
	cr_assert_str_eq(array, "");
}
