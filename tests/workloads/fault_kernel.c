/* Runs a command as if the running kernel lacked features: rules name what fails.
 *
 *   fault_kernel RULES COMMAND [ARGUMENT]...
 *
 * The rules, each ";KIND VALUE ERRNO":
 *   map TYPE, map_flags FLAGS    of bpf(BPF_MAP_CREATE)
 *   helper NUMBER                bpf(BPF_PROG_LOAD) of programs that call it: the verifier refuses them, with its own error
 *   attach TYPE, btf ID          the same for programs with this attach type, or for this type of the kernel
 *   tracepoint NAME              bpf(BPF_RAW_TRACEPOINT_OPEN)
 *   bpf COMMAND                  any other command
 *   event TYPE, event TYPE.CONFIG    perf_event_open()
 *   file PATH                    open()
 *   delay fsync                  fsync() and fdatasync() do not fail but take ERRNO milliseconds longer
 *
 * A seccomp filter hands these system calls to a supervisor, which compares them with the rules; the kernel carries out the rest.
  * Preloading a library would be simpler, but a static program loads none. The command keeps its process id. The supervisor is
  * not a child of the command, and ends with it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/bpf.h>
#include <linux/filter.h>
#include <linux/perf_event.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NO_HELPER = 0x7fff };

static const char *rules;

static void fail(const char *what) {
    perror(what);
    exit(125);
}

/* The error of a matching rule, or 0. */
static int rule(const char *kind, const char *value) {
    char key[4200];
    snprintf(key, sizeof key, ";%s %s ", kind, value);
    const char *found = strstr(rules, key);
    return found ? atoi(found + strlen(key)) : 0;
}

static int number(const char *kind, unsigned long value) {
    char text[32];
    snprintf(text, sizeof text, "%lu", value);
    return rule(kind, text);
}

/* Reads the memory of the thread that makes the call. */
static ssize_t get(pid_t thread, uint64_t from, void *to, size_t size) {
    struct iovec local = {to, size}, remote = {(void *)(uintptr_t)from, size};
    return process_vm_readv(thread, &local, 1, &remote, 1, 0);
}

static void put(pid_t thread, const void *from, uint64_t to, size_t size) {
    struct iovec local = {(void *)from, size}, remote = {(void *)(uintptr_t)to, size};
    if (process_vm_writev(thread, &local, 1, &remote, 1, 0) != (ssize_t)size) fail("fault_kernel: process_vm_writev");
}

/* Reads page by page, because the next page may not be mapped. */
static void get_text(pid_t thread, uint64_t from, char *to, size_t size) {
    size_t had = 0;
    memset(to, 0, size);
    while (had + 1 < size && !memchr(to, 0, had)) {
        size_t left = size - 1 - had, page = 4096 - (from + had) % 4096;
        ssize_t got = get(thread, from + had, to + had, page < left ? page : left);
        if (got <= 0) return;
        had += (size_t)got;
    }
}

/* Replaces helpers by one that no kernel has. The kernel then decides whether the call matters: in unreachable code it does not. */
static void hide_helpers(pid_t thread, const union bpf_attr *attr) {
    size_t size = attr->insn_cnt * sizeof(struct bpf_insn);
    struct bpf_insn *code = malloc(size);
    if (!code || get(thread, attr->insns, code, size) != (ssize_t)size) fail("fault_kernel: a program's instructions");
    for (unsigned at = 0; at < attr->insn_cnt; at++) {
        if (code[at].code != (BPF_JMP | BPF_CALL) || code[at].src_reg != 0) continue;
        if (!number("helper", (unsigned)code[at].imm)) continue;
        code[at].imm = NO_HELPER;
        put(thread, &code[at], attr->insns + at * sizeof *code, sizeof *code);
    }
    free(code);
}

static int load(pid_t thread, const union bpf_attr *attr) {
    hide_helpers(thread, attr);
    int error = attr->expected_attach_type ? number("attach", attr->expected_attach_type) : 0;
    return error || !attr->attach_btf_id ? error : number("btf", attr->attach_btf_id);
}

static int bpf(pid_t thread, long command, uint64_t from, size_t size) {
    int error = number("bpf", (unsigned long)command);
    /* The rest of a shorter block counts as zero. */
    union bpf_attr attr = {0};
    char name[128];
    if (error || get(thread, from, &attr, size < sizeof attr ? size : sizeof attr) < 0) return error;
    switch (command) {
    case BPF_MAP_CREATE:
        error = number("map", attr.map_type);
        return error ? error : number("map_flags", attr.map_flags);
    case BPF_PROG_LOAD:
        return load(thread, &attr);
    case BPF_RAW_TRACEPOINT_OPEN:
        if (!attr.raw_tracepoint.name) return 0;
        get_text(thread, attr.raw_tracepoint.name, name, sizeof name);
        return rule("tracepoint", name);
    default:
        return 0;
    }
}

static int event(pid_t thread, uint64_t from) {
    struct perf_event_attr attr = {0};
    char text[64];
    /* The size of the first version has all the fields needed. */
    if (get(thread, from, &attr, PERF_ATTR_SIZE_VER0) < 0) return 0;
    snprintf(text, sizeof text, "%u.%llu", attr.type, attr.config);
    int error = number("event", attr.type);
    return error ? error : rule("event", text);
}

static int judge(const struct seccomp_notif *call) {
    const __u64 *word = call->data.args;
    pid_t thread = (pid_t)call->pid;
    char path[4096];
    switch (call->data.nr) {
    case SYS_bpf:
        return bpf(thread, (long)word[0], word[1], word[2]);
    case SYS_perf_event_open:
        return event(thread, word[0]);
    case SYS_fsync:
    case SYS_fdatasync:
        usleep((useconds_t)rule("delay", "fsync") * 1000);
        return 0;
    default:
        get_text(thread, word[call->data.nr == SYS_openat], path, sizeof path);
        return rule("file", path);
    }
}

/* Answers calls until the command has ended. */
static void supervise(int listener, int command) {
    struct seccomp_notif_sizes sizes;
    if (syscall(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, &sizes)) fail("fault_kernel: seccomp");
    size_t call_size = sizes.seccomp_notif, answer_size = sizes.seccomp_notif_resp;
    if (call_size < sizeof(struct seccomp_notif)) call_size = sizeof(struct seccomp_notif);
    if (answer_size < sizeof(struct seccomp_notif_resp)) answer_size = sizeof(struct seccomp_notif_resp);
    struct seccomp_notif *call = malloc(call_size);
    struct seccomp_notif_resp *answer = malloc(answer_size);
    struct pollfd ready[2] = {{listener, POLLIN, 0}, {command, POLLIN, 0}};
    while (call && answer && poll(ready, 2, -1) > 0 && !ready[1].revents) {
        memset(call, 0, call_size);
        memset(answer, 0, answer_size);
        /* The thread that called may have been killed meanwhile. */
        if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, call)) continue;
        answer->id = call->id;
        answer->error = -judge(call);
        if (!answer->error) answer->flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
        ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, answer);
    }
}

/* Hands over only the calls that a rule may concern, because pyobs calls some bpf() commands all the time. */
static int filter(void) {
    enum { LOAD = BPF_LD | BPF_W | BPF_ABS, IS = BPF_JMP | BPF_JEQ | BPF_K };
    __u32 open = strstr(rules, ";file ") ? SECCOMP_RET_USER_NOTIF : SECCOMP_RET_ALLOW;
    __u32 other = strstr(rules, ";bpf ") ? SECCOMP_RET_USER_NOTIF : SECCOMP_RET_ALLOW;
    __u32 sync = strstr(rules, ";delay fsync ") ? SECCOMP_RET_USER_NOTIF : SECCOMP_RET_ALLOW;
    struct sock_filter steps[] = {
        BPF_STMT(LOAD, offsetof(struct seccomp_data, arch)),
        BPF_JUMP(IS, AUDIT_ARCH_X86_64, 1, 0),
        BPF_STMT(BPF_RET, SECCOMP_RET_ALLOW),
        BPF_STMT(LOAD, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(IS, SYS_fsync, 1, 0),
        BPF_JUMP(IS, SYS_fdatasync, 0, 1),
        BPF_STMT(BPF_RET, sync),
        BPF_JUMP(IS, SYS_open, 3, 0),
        BPF_JUMP(IS, SYS_openat, 2, 0),
        BPF_JUMP(IS, SYS_perf_event_open, 7, 0),
        BPF_JUMP(IS, SYS_bpf, 1, 7),
        BPF_STMT(BPF_RET, open),
        BPF_STMT(LOAD, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(IS, BPF_MAP_CREATE, 3, 0),
        BPF_JUMP(IS, BPF_PROG_LOAD, 2, 0),
        BPF_JUMP(IS, BPF_RAW_TRACEPOINT_OPEN, 1, 0),
        BPF_STMT(BPF_RET, other),
        BPF_STMT(BPF_RET, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof steps / sizeof *steps, steps};
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
}

int main(int argc, char **argv) {
    if (argc < 3) return 125;
    rules = argv[1];
    int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
    if (self < 0) fail("fault_kernel: pidfd_open");
    int listener = filter();
    if (listener < 0) fail("fault_kernel: seccomp");
    pid_t child = fork();
    if (child < 0) fail("fault_kernel: fork");
    if (child == 0) {
        /* Forks twice, so that the command has no unexpected child. */
        pid_t judge = fork();
        if (judge) _exit(judge < 0);
        /* Otherwise a reader of the command's output would wait for this process too. */
        for (int stream = 0; stream < 3; stream++) close(stream);
        supervise(listener, self);
        _exit(0);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status) fail("fault_kernel: fork");
    close(self);
    close(listener);
    execv(argv[2], argv + 2);
    fail(argv[2]);
}
