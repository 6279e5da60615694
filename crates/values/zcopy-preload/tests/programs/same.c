/* What sends of large memory come to: the same lines with and without the library. Counts that depend on how a socket counts its room are
 * told only as none, some or all. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(that) do { if (!(that)) { fprintf(stderr, "line %d: %s (errno %d)\n", __LINE__, #that, errno); exit(1); } } while (0)
/* More than any socket holds. */
enum { LEN = 24 << 20, LITTLE = 64 << 10 };

static const char *kind;
static char *large;
static volatile sig_atomic_t pipes, users;
static atomic_int over, drained;
static pthread_t sender, disturber;

static void on_signal(int number) { if (number == SIGPIPE) pipes++; else users++; }

static void handle(int number, int flags) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = flags};
    CHECK(sigaction(number, &action, NULL) == 0);
}

static void connected(int ends[2]) {
    if (strcmp(kind, "unix") == 0) {
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
        return;
    }
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(listener, (void *)&at, len) == 0 && listen(listener, 1) == 0);
    CHECK(getsockname(listener, (void *)&at, &len) == 0);
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(ends[0], (void *)&at, len) == 0 && (ends[1] = accept(listener, NULL, NULL)) >= 0);
    close(listener);
}

static void both_closed(int ends[2]) { close(ends[0]); close(ends[1]); }

static void block(int fd, int blocks) { CHECK(fcntl(fd, F_SETFL, blocks ? 0 : O_NONBLOCK) == 0); }

/* The result of a call that was to send so much. */
static void said(const char *what, ssize_t sent, ssize_t of) {
    int error = errno;
    const char *much = sent < 0 ? strerrorname_np(error) : sent == 0 ? "none" : sent < of ? "some" : "all";
    printf("%s %s: %s, SIGPIPE %d\n", kind, what, much, (int)pipes);
    pipes = 0;
}

/* Until there is room for nothing, and none comes by what is under way. */
static void fill(int fd) {
    block(fd, 0);
    int had = 0;
    for (int nothing = 0; nothing < 5;) {
        ssize_t sent = write(fd, large, LEN);
        if (sent >= 0) { had = 1; nothing = 0; continue; }
        CHECK(errno == EAGAIN);
        struct pollfd one = {.fd = fd, .events = POLLOUT};
        if (poll(&one, 1, 20) == 0) nothing++;
    }
    CHECK(had);
    block(fd, 1);
}

static void *drain(void *fd) {
    static char got[1 << 20];
    ssize_t now;
    while ((now = read(*(int *)fd, got, sizeof got)) > 0) drained += now;
    return NULL;
}

/* Not before all signals have come: nothing has room until then. */
static void *wait_and_drain(void *fd) {
    CHECK(pthread_join(disturber, NULL) == 0);
    return drain(fd);
}

/* Signals the sender until it is over, or as often as is said. */
static void *disturb(void *times) {
    int most = (int)(size_t)times;
    for (int n = 0; !over && (most == 0 || n < most); n++) {
        int before = users;
        CHECK(pthread_kill(sender, SIGUSR1) == 0);
        while (!over && users == before) sched_yield();
    }
    return NULL;
}

static void interrupted(int restarts, int times_out, int full) {
    int ends[2];
    connected(ends);
    struct timeval long_time = {1000, 0};
    if (times_out) CHECK(setsockopt(ends[0], SOL_SOCKET, SO_SNDTIMEO, &long_time, sizeof long_time) == 0);
    handle(SIGUSR1, restarts ? SA_RESTART : 0);
    users = over = 0;
    if (full) fill(ends[0]);
    pthread_t other;
    CHECK(pthread_create(&other, NULL, disturb, 0) == 0);
    char what[80];
    snprintf(what, sizeof what, "signal%s%s, %s", restarts ? " that restarts" : "", times_out ? ", time-out" : "", full ? "no room" : "some room");
    ssize_t sent = write(ends[0], large, LEN);
    said(what, sent, LEN);
    over = 1;
    CHECK(pthread_join(other, NULL) == 0);
    both_closed(ends);
}

/* With nothing sent yet, a call that is restarted goes on. */
static void restarted(void) {
    int ends[2];
    connected(ends);
    handle(SIGUSR1, SA_RESTART);
    fill(ends[0]);
    users = over = 0;
    pthread_t reader;
    CHECK(pthread_create(&disturber, NULL, disturb, (void *)200) == 0);
    CHECK(pthread_create(&reader, NULL, wait_and_drain, &ends[1]) == 0);
    ssize_t sent = write(ends[0], large, LEN);
    said("signals that restart, then room", sent, LEN);
    shutdown(ends[0], SHUT_WR);
    CHECK(pthread_join(reader, NULL) == 0);
    printf("%s signals %d\n", kind, (int)users);
    both_closed(ends);
}

static void timed_out(void) {
    int ends[2];
    connected(ends);
    struct timeval short_time = {0, 200000};
    CHECK(setsockopt(ends[0], SOL_SOCKET, SO_SNDTIMEO, &short_time, sizeof short_time) == 0);
    for (int n = 0; n < 3; n++) {
        struct timespec begin, end;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        ssize_t sent = write(ends[0], large, LEN);
        int error = errno;
        clock_gettime(CLOCK_MONOTONIC, &end);
        long ms = (end.tv_sec - begin.tv_sec) * 1000 + (end.tv_nsec - begin.tv_nsec) / 1000000;
        errno = error;
        /* The receiver may make room once more. */
        if (n != 1) said("time-out", sent, LEN);
        printf("%s waited: %d\n", kind, ms >= 190);
    }
    both_closed(ends);
}

/* Part of it went before the other end closed. */
static void *wait_and_close(void *fd) {
    int *ends = fd, queued = 0, same = 0;
    for (int before = 0; queued == 0 || same < 3; before = queued) {
        CHECK(ioctl(ends[0], TIOCOUTQ, &queued) == 0);
        same = queued == before && queued > 0 ? same + 1 : 0;
        struct timespec little = {0, 10000000};
        nanosleep(&little, NULL);
    }
    close(ends[1]);
    return NULL;
}

static void left(void) {
    int ends[2];
    connected(ends);
    handle(SIGPIPE, 0);
    pthread_t other;
    CHECK(pthread_create(&other, NULL, wait_and_close, ends) == 0);
    ssize_t sent = write(ends[0], large, LEN);
    said("other end closes meanwhile", sent, LEN);
    CHECK(pthread_join(other, NULL) == 0);
    sent = send(ends[0], large, LEN, MSG_NOSIGNAL);
    sent = sent < 0 && errno == ECONNRESET ? send(ends[0], large, LEN, MSG_NOSIGNAL) : sent;
    said("then, without a signal", sent, LEN);
    sent = write(ends[0], large, LITTLE);
    said("then, with one", sent, LITTLE);
    struct iovec pieces[] = {{"head", 4}, {large, LITTLE}};
    sent = writev(ends[0], pieces, 2);
    said("a list", sent, LITTLE + 4);
    handle(SIGPIPE, SA_RESTART);
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 2};
    sent = sendmsg(ends[0], &message, MSG_NOSIGNAL);
    said("a message, without a signal", sent, LITTLE + 4);
    signal(SIGPIPE, SIG_IGN);
    sent = write(ends[0], large, LITTLE);
    said("ignored", sent, LITTLE);
    /* Blocked: it stays pending, once. */
    handle(SIGPIPE, 0);
    sigset_t one, pending;
    sigemptyset(&one);
    sigaddset(&one, SIGPIPE);
    CHECK(sigprocmask(SIG_BLOCK, &one, NULL) == 0);
    sent = write(ends[0], large, LITTLE);
    said("blocked", sent, LITTLE);
    CHECK(sigpending(&pending) == 0);
    printf("%s pending %d\n", kind, sigismember(&pending, SIGPIPE));
    CHECK(sigprocmask(SIG_UNBLOCK, &one, NULL) == 0);
    printf("%s unblocked %d\n", kind, (int)pipes);
    pipes = 0;
    /* And what it does by itself. */
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGPIPE, SIG_DFL);
        (void)!write(ends[0], large, LITTLE);
        _exit(7);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    printf("%s by itself: signal %d\n", kind, WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    close(ends[0]);
}

static void no_peer(void) {
    int ends[2];
    connected(ends);
    CHECK(shutdown(ends[0], SHUT_WR) == 0);
    said("after shutdown", write(ends[0], large, LITTLE), LITTLE);
    said("of nothing", write(ends[0], large, 0), 0);
    both_closed(ends);
    int lonely = strcmp(kind, "unix") == 0 ? socket(AF_UNIX, SOCK_STREAM, 0) : socket(AF_INET, SOCK_STREAM, 0);
    said("nobody connected", write(lonely, large, LITTLE), LITTLE);
    close(lonely);
    connected(ends);
    static struct iovec many[2000];
    for (int n = 0; n < 2000; n++) many[n] = (struct iovec){large, 8192};
    said("too many pieces", writev(ends[0], many, 2000), 1);
    many[1].iov_len = (size_t)-1;
    said("too long a list", writev(ends[0], many, 2), 1);
    CHECK(fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0);
    volatile size_t far_too_long = (size_t)-1;
    said("too long", write(ends[0], large, far_too_long), 1);
    many[1].iov_len = 8192;
    said("a thousand and some pieces", writev(ends[0], many, 1024), 1024 * 8192);
    both_closed(ends);
}

/* Short counts until there is no room, and all of it arrives. */
static void parts(void) {
    int ends[2];
    connected(ends);
    block(ends[0], 0);
    static char got[1 << 20];
    size_t sent = 0, came = 0;
    int shorts = 0, again = 0;
    while (came < LEN) {
        while (sent < LEN) {
            ssize_t now = send(ends[0], large + sent, LEN - sent, 0);
            if (now < 0) { CHECK(errno == EAGAIN); again = 1; break; }
            CHECK(now > 0);
            sent += now;
            if (sent < LEN) shorts = 1;
        }
        struct pollfd one = {.fd = ends[1], .events = POLLIN};
        CHECK(poll(&one, 1, -1) == 1);
        ssize_t now = read(ends[1], got, sizeof got);
        CHECK(now > 0 && memcmp(got, large + came, now) == 0);
        came += now;
    }
    printf("%s parts: short %d, no room %d, all of it %d\n", kind, shorts, again, sent == LEN);
    both_closed(ends);
}

int main(void) {
    sender = pthread_self();
    CHECK((large = malloc(LEN)));
    for (int n = 0; n < LEN; n++) large[n] = (char)(n * 7 + n / 256);
    const char *kinds[] = {"unix", "tcp"};
    for (int n = 0; n < 2; n++) {
        kind = kinds[n];
        handle(SIGPIPE, 0);
        for (int how = 0; how < 8; how++)
            /* Without a time-out a call that is restarted goes on for ever. Where there is room, a signal that comes before the first byte has to be met. */
            for (int times = how >> 2 ? 1 : 100; (!(how & 1) || how & 2) && times > 0; times--) interrupted(how & 1, how >> 1 & 1, how >> 2);
        restarted();
        timed_out();
        left();
        handle(SIGPIPE, 0);
        no_peer();
        parts();
    }
    return 0;
}
