/* A sandbox that refuses a call, with whatever number, costs no connection. refused CALL FIRST LAST */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LEN = 100000, TIMES = 60 };
static int ends[2];

static void *reader(void *large) {
    static char got[LEN];
    for (int times = 0; times < TIMES; times++) {
        size_t all = 0;
        while (all < LEN) {
            ssize_t now = read(ends[1], got + all, LEN - all);
            if (now <= 0) return "the connection ended";
            all += now;
        }
        if (memcmp(got, large, LEN) != 0) return "other bytes";
    }
    return NULL;
}

static void refuse(unsigned call, unsigned number) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | number),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        perror("seccomp");
        exit(77);
    }
}

static int sends(unsigned call, unsigned number, int waits) {
    pthread_t thread;
    void *wrong;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return 2;
    char *large = malloc(LEN);
    for (int n = 0; n < LEN; n++) large[n] = (char)(n * 7 + n / 256);
    if (pthread_create(&thread, NULL, reader, large) != 0) return 2;
    if (!waits && fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0) return 2;
    refuse(call, number);
    for (int times = 0; times < TIMES; times++)
        for (size_t all = 0; all < LEN;) {
            struct iovec pieces[] = {{large + all, LEN - all}};
            ssize_t now = times % 2 ? write(ends[0], large + all, LEN - all) : writev(ends[0], pieces, 1);
            if (now > 0) {
                all += now;
            } else if (!waits && errno == EAGAIN) {
                struct pollfd room = {ends[0], POLLOUT, 0};
                poll(&room, 1, -1);
            } else if (errno != EINTR) {
                fprintf(stderr, "a send failed: %s\n", strerror(errno));
                return 1;
            }
        }
    pthread_join(thread, &wrong);
    if (wrong) fprintf(stderr, "%s\n", (char *)wrong);
    return wrong != NULL;
}

int main(int count, char **words) {
    static const struct { const char *name; unsigned number; } calls[] = {
        {"vmsplice", SYS_vmsplice}, {"splice", SYS_splice}, {"sendfile", SYS_sendfile}, {"tee", SYS_tee},
        {"io_uring_setup", SYS_io_uring_setup}, {"io_uring_enter", SYS_io_uring_enter}, {"ioctl", SYS_ioctl}, {"pipe2", SYS_pipe2},
        {"fcntl", SYS_fcntl}, {"getsockopt", SYS_getsockopt}, {"memfd_create", SYS_memfd_create}, {"openat", SYS_openat},
    };
    size_t which = 0, all = sizeof calls / sizeof *calls;
    if (count < 4) return 2;
    while (which < all && strcmp(words[1], calls[which].name)) which++;
    if (which == all) return 2;
    for (int number = atoi(words[2]); number <= atoi(words[3]); number++)
        for (int waits = 0; waits < 2; waits++) {
            int status;
            /* Nothing large is allocated before: what is inherited is copied anyway. */
            if (fork() == 0) exit(sends(calls[which].number, number, waits));
            if (wait(&status) < 0) return 2;
            if (WIFEXITED(status) && WEXITSTATUS(status) == 77) return 77;
            if (status != 0) {
                fprintf(stderr, "%s with %s, %s: status %x\n", words[1], strerror(number), waits ? "waiting" : "not waiting", status);
                return 1;
            }
        }
    return 0;
}
