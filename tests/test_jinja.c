// SPDX-License-Identifier: Apache-2.0
// Chat templates: what the subset renders, against text that the reference implementation (Jinja 3.1, trim_blocks and
// lstrip_blocks on, as transformers sets it) gave for the same template; and what is refused, by its name.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/jinja.h"
#include "radiance_run.h"

static const rd_chat_message conversation[] = {
    {"system", "Be brief."},
    {"user", "  Hi <b>\n"},
    {"assistant", "<think>\nhm\n</think>\n\nHello \xc3\xa9"},
    {"user", "x"},
};

static rd_status render(const char *source, int32_t skip, bool prompt, char *text, size_t capacity) {
    size_t needed = 0, bytes = strlen(source);
    char *exact = malloc(bytes ? bytes : 1); // no NUL after it: reads past the end are seen by ASan
    memcpy(exact, source, bytes);
    rdi_jinja_chat chat = {exact, bytes, "<s>", "</s>"};
    rd_status status =
        rdi_jinja_render(&chat, conversation + skip, 4 - skip, prompt, text, capacity, &needed);
    free(exact);
    if (!status) {
        assert_true(needed < capacity);
        text[needed] = 0;
    }
    return status;
}

static void test_jinja_renders_as_the_reference(void **state) {
    (void)state;
    static const struct {
        const char *source;
        int skip;
        const char *want;
    } rows[] = {
#include "refs/jinja_rows.inc"
    };
    for (size_t i = 0; i < RDI_COUNT(rows); i++) {
        char text[4096];
        if (render(rows[i].source, rows[i].skip, true, text, sizeof text))
            fail_msg("row %zu: %s", i, rd_error_text());
        assert_string_equal(text, rows[i].want);
    }
}

static void test_jinja_refuses_by_name(void **state) {
    (void)state;
    static const struct {
        const char *source, *text;
    } rows[] = {
        {"{% macro f() %}{% endmacro %}", "statement 'macro'"},
        {"\n\n{% include 'x' %}", "line 3: statement 'include'"},
        {"{% import 'os' as os %}", "statement 'import'"},
        {"{% generation %}", "statement 'generation'"},
        {"{{ messages | tojson }}", "filter tojson of a list"},
        {"{{ 'a' is divisibleby }}", "test divisibleby"},
        {"{{ strftime_now('%d') }}", "call of strftime_now"},
        {"{{ range(3) }}", "call of range"},
        {"{{ ''.__class__ }}{{ ''.format() }}", "call of .format"},
        {"{{ 2 * 3 }}", "operator *"},
        {"{{ 1.5 }}", "no whole number"},
        {"{{ {'a': 1} }}", "a dict literal"},
        {"{{ (1, 2) }}", "a tuple"},
        {"{% for a, b in messages %}{% endfor %}", "for with several names"},
        {"{% for a in messages recursive %}{% endfor %}", "a recursive for"},
        {"{% set x %}y{% endset %}", "a set block"},
        {"{{ 1 < 2 < 3 }}", "a chained comparison"},
        {"{% if true %}", "ends inside an if"},
        {"{% endif %}", "endif without its beginning"},
        {"{% for m in messages %}{% endif %}", "a for without its endfor"},
        {"{{ 'a }}", "closing quote"},
        {"{{ '\\x41' }}", "escape \\x"},
        {"{{ a", "ends inside a tag"},
        {"{# a", "a comment without its end"},
        {"{{ nothing.at.all }}", "'nothing' is undefined"},
        {"{{ nothing + 'a' }}", "'nothing' is undefined"},
        {"{{ 'a' + 1 }}", "an operator between these types"},
        {"{{ messages }}", "printing a list"},
        {"{{ 9223372036854775808 }}", "beyond 64 bits"},
        {"{{ 9223372036854775807 + 1 }}", "64-bit result"},
        {"{{ 1 % 0 }}", "64-bit result"},
        {"{% for c in 'abc' %}{% endfor %}", "over something that is no list"},
    };
    for (size_t i = 0; i < RDI_COUNT(rows); i++) {
        char text[256];
        rd_status status = render(rows[i].source, 0, false, text, sizeof text);
        if (status != RD_E_UNSUPPORTED || !strstr(rd_error_text(), rows[i].text))
            fail_msg("%s: status %d \"%s\", needs \"%s\"", rows[i].source, status,
                     status ? rd_error_text() : text, rows[i].text);
    }
    char text[64];
    assert_int_equal(render("{{ raise_exception('roles must alternate') }}", 0, false, text, sizeof text),
                     RD_E_INVALID);
    assert_non_null(strstr(rd_error_text(), "roles must alternate"));
}

// Hostile templates end with a limit, not with the machine's memory or stack.
static void test_jinja_is_bounded(void **state) {
    (void)state;
    char text[64], deep[4096];
    assert_int_equal(render("{% set ns = namespace(x='aaaaaaaaaaaaaaaa') %}{% for a in messages %}{% for b "
                            "in messages %}{% for c in messages %}"
                            "{% set ns.x = ns.x + ns.x %}{% endfor %}{% endfor %}{% endfor %}",
                            0, false, text, sizeof text),
                     RD_E_LIMIT);
    char loops[1024] = "";
    for (int i = 0; i < 14; i++) strcat(loops, "{% for a in messages %}");
    strcat(loops, "x");
    for (int i = 0; i < 14; i++) strcat(loops, "{% endfor %}");
    assert_int_equal(render(loops, 0, false, text, sizeof text), RD_E_LIMIT); // 4^14 rounds
    memset(deep, '(', sizeof deep);
    memcpy(deep, "{{", 2);
    deep[sizeof deep - 1] = 0;
    assert_int_equal(render(deep, 0, false, text, sizeof text), RD_E_LIMIT);
    char *at = deep;
    for (int i = 0; i < 60; i++) at += sprintf(at, "{%% if true %%}");
    assert_int_equal(render(deep, 0, false, text, sizeof text), RD_E_LIMIT);
    at = deep + sprintf(deep, "{{ 1");
    for (int i = 0; i < 1000; i++) at += sprintf(at, "+1");
    sprintf(at, " }}");
    assert_int_equal(render(deep, 0, false, text, sizeof text), RD_E_LIMIT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_jinja_renders_as_the_reference),
        cmocka_unit_test(test_jinja_refuses_by_name),
        cmocka_unit_test(test_jinja_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
