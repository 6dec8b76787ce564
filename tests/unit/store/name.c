/* What a name may be, and sets of them. */
#include "daemon/store/name.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

Test(name, may_be_any_printable_text_of_255_bytes)
{
	char name[257];
	memset(name, 'x', 256);
	name[255] = 0;
	cr_assert_null(name_check(name));
	name[255] = 'x';
	name[256] = 0;
	cr_assert_not_null(name_check(name));
	cr_assert_null(name_check("layers.0/attention weight"));
	cr_assert_null(name_check("gewicht\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80"));
}

Test(name, may_not_be_empty_or_hold_control_characters_or_broken_utf8)
{
	static const char *const bad[] = {
		"",
		"a\nb",
		"\x1b[0m",
		"a\x7f",
		"a\xc2\x85",        /* U+0085, a control character of two bytes */
		"\x80",             /* a continuation alone */
		"\xc3",             /* cut */
		"\xe2\x82",         /* cut */
		"\xc0\xaf",         /* overlong */
		"\xe0\x80\xaf",     /* overlong */
		"\xed\xa0\x80",     /* a surrogate */
		"\xf4\x90\x80\x80", /* beyond U+10FFFF */
		"\xff",
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		cr_assert_not_null(name_check(bad[i]), "case %zu", i);
	}
}

Test(name, set_knows_each_of_a_thousand_names)
{
	static char names[1000][16];
	struct name_set set = { 0 };
	for (int i = 0; i < 1000; i++) {
		snprintf(names[i], sizeof(names[i]), "n%d", i);
		cr_assert_eq(name_set_add(&set, names[i]), 1);
	}
	for (int i = 0; i < 1000; i++) {
		cr_assert_eq(name_set_add(&set, names[i]), 0);
	}
	name_set_clear(&set);
	cr_assert_eq(name_set_add(&set, names[0]), 1);
	name_set_clear(&set);
	cr_assert_eq(name_set_add(&set, names[0]), 1);
	name_set_fini(&set);
}
