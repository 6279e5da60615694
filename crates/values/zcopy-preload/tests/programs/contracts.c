/* What the manual pages promise, checked over memory that is large. */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(that) do { if (!(that)) { fprintf(stderr, "line %d: %s (errno %d)\n", __LINE__, #that, errno); exit(1); } } while (0)
enum { LEN = 300000 };

static volatile sig_atomic_t pipes;
static void on_pipe(int number) { (void)number; pipes++; }

static void pair(int ends[2]) { CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0); }

static void *reader(void *fd) {
    static char got[LEN];
    size_t all = 0;
    ssize_t now;
    while (all < LEN && (now = read(*(int *)fd, got + all, LEN - all)) > 0) all += now;
    return got;
}

static void *churn(void *seed) {
    unsigned state = (unsigned)(size_t)seed;
    char *held[64] = {0};
    size_t sizes[64] = {0};
    for (int n = 0; n < 20000; n++) {
        state = state * 1103515245 + 12345;
        int which = state >> 16 & 63;
        if (held[which]) {
            CHECK(held[which][0] == (char)which && held[which][sizes[which] - 1] == (char)which);
            free(held[which]);
        }
        sizes[which] = 1 + (state >> 8) % 70000;
        held[which] = malloc(sizes[which]);
        held[which][0] = held[which][sizes[which] - 1] = (char)which;
    }
    for (int which = 0; which < 64; which++) free(held[which]);
    return NULL;
}

int main(void) {
    int ends[2];
    pthread_t thread, threads[3];
    void *got;
    char *large = malloc(LEN);
    CHECK(large && malloc_usable_size(large) >= LEN);
    for (int n = 0; n < LEN; n++) large[n] = (char)(n * 7 + n / 256);

    /* A blocking send sends all of it. */
    pair(ends);
    CHECK(pthread_create(&thread, NULL, reader, &ends[1]) == 0);
    errno = 77;
    CHECK(write(ends[0], large, LEN) == LEN && errno == 77);
    CHECK(pthread_join(thread, &got) == 0 && memcmp(got, large, LEN) == 0);

    /* Pieces of all kinds stay in their order; what is written afterwards does not arrive. */
    char head[] = "head", tail[] = "tail", *copy = malloc(LEN);
    memcpy(copy, large, LEN);
    struct iovec pieces[] = {{head, 4}, {large, 100000}, {tail, 4}};
    CHECK(fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0);
    int room = 1 << 20;
    CHECK(setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof room) == 0);
    ssize_t sent = writev(ends[0], pieces, 3);
    CHECK(sent > 4);
    memset(large, 'x', LEN);
    static char back[LEN];
    for (ssize_t all = 0; all < sent;) {
        ssize_t now = read(ends[1], back + all, sent - all);
        CHECK(now > 0);
        all += now;
    }
    CHECK(memcmp(back, "head", 4) == 0);
    CHECK(memcmp(back + 4, copy, sent - 4 > 100000 ? 100000 : sent - 4) == 0);
    CHECK(sent < 100008 || memcmp(back + 100004, "tail", 4) == 0);

    /* No room: some of it, then EAGAIN. */
    ssize_t now;
    int full = 0;
    for (int n = 0; n < 100000 && !full; n++) {
        errno = 0;
        now = send(ends[0], large, LEN, 0);
        CHECK(now <= LEN && now != 0);
        if (now < 0) { CHECK(errno == EAGAIN); full = 1; }
    }
    CHECK(full);

    /* Nobody there: EPIPE, with its signal unless it is not wanted. */
    struct sigaction action = {.sa_handler = on_pipe};
    CHECK(sigaction(SIGPIPE, &action, NULL) == 0);
    close(ends[1]);
    CHECK(send(ends[0], large, LEN, MSG_NOSIGNAL) == -1 && errno == EPIPE && pipes == 0);
    CHECK(write(ends[0], large, LEN) == -1 && errno == EPIPE && pipes == 1);
    close(ends[0]);
    CHECK(write(ends[0], large, LEN) == -1 && errno == EBADF);

    /* A file is no socket. */
    FILE *file = tmpfile();
    CHECK(file && write(fileno(file), large, LEN) == LEN);

    /* Datagrams keep their bounds. */
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0);
    CHECK(send(ends[0], large, 20000, 0) == 20000 && read(ends[1], back, LEN) == 20000);

    /* The rest of malloc. */
    char *zeros = calloc(3, 100000);
    for (int n = 0; n < 300000; n++) CHECK(zeros[n] == 0);
    strcpy(zeros, "kept");
    zeros = realloc(zeros, 900000);
    CHECK(strcmp(zeros, "kept") == 0 && malloc_usable_size(zeros) >= 900000);
    zeros = realloc(zeros, 10);
    CHECK(strcmp(zeros, "kept") == 0);
    void *aligned;
    CHECK(posix_memalign(&aligned, 4096, 50000) == 0 && (size_t)aligned % 4096 == 0);
    CHECK(posix_memalign(&got, 3, 50000) == EINVAL);
    free(aligned);
    free(zeros);
    void *wide = aligned_alloc(65536, 131072);
    CHECK(wide && (size_t)wide % 65536 == 0);
    free(wide);

    /* Threads, and a child in the middle of it. */
    for (size_t n = 0; n < 3; n++) CHECK(pthread_create(&threads[n], NULL, churn, (void *)(n + 1)) == 0);
    for (int n = 0; n < 20; n++) {
        memset(large, n, LEN);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            for (int at = 0; at < LEN; at++) if (large[at] != n) _exit(2);
            large = realloc(large, 2 * LEN);
            memset(large, 99, 2 * LEN);
            char *own = malloc(LEN);
            memset(own, 1, LEN);
            free(own);
            free(large);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        for (int at = 0; at < LEN; at += 1000) CHECK(large[at] == n);
    }
    for (int n = 0; n < 3; n++) CHECK(pthread_join(threads[n], NULL) == 0);
    free(copy);
    free(large);
    return 0;
}
