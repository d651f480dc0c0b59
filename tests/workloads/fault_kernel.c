/* Preloaded, it makes of the running kernel one that lacks something: what rules name is refused before the kernel sees it.
 *
 * PYOBS_TEST_REFUSES holds the rules, each ";KIND VALUE ERRNO":
 *   map TYPE, map_flags FLAGS    of bpf(BPF_MAP_CREATE)
 *   helper NUMBER                bpf(BPF_PROG_LOAD) of what calls it; the log says so, as the verifier does
 *   attach TYPE, btf ID          the same of what is for such a place, or for this type of the kernel's
 *   tracepoint NAME              bpf(BPF_RAW_TRACEPOINT_OPEN)
 *   bpf COMMAND                  any other command
 *   event TYPE, event TYPE.CONFIG    perf_event_open()
 *   clock TYPE.CONFIG            no refusal: cpu-clock comes instead
 *   file PATH                    open()
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

/* The error of a rule, or 0 where there is none. */
static int rule(const char *kind, const char *value) {
    const char *rules = getenv("PYOBS_TEST_REFUSES");
    char key[256];
    snprintf(key, sizeof key, ";%s %s ", kind, value);
    const char *found = rules ? strstr(rules, key) : NULL;
    return found ? atoi(found + strlen(key)) : 0;
}

static int number(const char *kind, unsigned long value) {
    char text[32];
    snprintf(text, sizeof text, "%lu", value);
    return rule(kind, text);
}

static int load(const union bpf_attr *attr) {
    const struct bpf_insn *code = (const void *)(uintptr_t)attr->insns;
    for (unsigned at = 0; at < attr->insn_cnt; at++) {
        if (code[at].code != (BPF_JMP | BPF_CALL) || code[at].src_reg != 0) continue;
        int error = number("helper", (unsigned)code[at].imm);
        if (!error) continue;
        if (attr->log_level && attr->log_buf)
            snprintf((char *)(uintptr_t)attr->log_buf, attr->log_size, "invalid func unknown#%d\n", code[at].imm);
        return error;
    }
    int error = attr->expected_attach_type ? number("attach", attr->expected_attach_type) : 0;
    return error || !attr->attach_btf_id ? error : number("btf", attr->attach_btf_id);
}

static int bpf(long command, const union bpf_attr *attr) {
    int error = number("bpf", command);
    if (error) return error;
    switch (command) {
    case BPF_MAP_CREATE:
        error = number("map", attr->map_type);
        return error ? error : number("map_flags", attr->map_flags);
    case BPF_PROG_LOAD:
        return load(attr);
    case BPF_RAW_TRACEPOINT_OPEN:
        return attr->raw_tracepoint.name ? rule("tracepoint", (const char *)(uintptr_t)attr->raw_tracepoint.name) : 0;
    default:
        return 0;
    }
}

static int event(struct perf_event_attr *attr) {
    char text[64];
    snprintf(text, sizeof text, "%u.%llu", attr->type, attr->config);
    if (rule("clock", text)) {
        attr->type = PERF_TYPE_SOFTWARE;
        attr->config = PERF_COUNT_SW_CPU_CLOCK;
    }
    int error = number("event", attr->type);
    return error ? error : rule("event", text);
}

long syscall(long call, ...) {
    static long (*real)(long, ...);
    if (!real) real = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    long word[6];
    va_list words;
    va_start(words, call);
    for (int at = 0; at < 6; at++) word[at] = va_arg(words, long);
    va_end(words);
    struct perf_event_attr attr;
    int error = 0;
    if (call == SYS_bpf) {
        /* Of shorter blocks the rest is zero. */
        union bpf_attr whole = {0};
        memcpy(&whole, (void *)word[1], (size_t)word[2] < sizeof whole ? (size_t)word[2] : sizeof whole);
        error = bpf(word[0], &whole);
    } else if (call == SYS_perf_event_open) {
        struct perf_event_attr *given = (void *)word[0];
        memset(&attr, 0, sizeof attr);
        memcpy(&attr, given, given->size < sizeof attr ? given->size : sizeof attr);
        error = event(&attr);
        if (given->size <= sizeof attr) word[0] = (long)&attr;
    }
    if (error) {
        errno = error;
        return -1;
    }
    return real(call, word[0], word[1], word[2], word[3], word[4], word[5]);
}

int open64(const char *path, int flags, ...) {
    static int (*real)(const char *, int, ...);
    if (!real) real = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open64");
    va_list rest;
    va_start(rest, flags);
    mode_t mode = va_arg(rest, mode_t);
    va_end(rest);
    int error = rule("file", path);
    if (error) {
        errno = error;
        return -1;
    }
    return real(path, flags, mode);
}
