/* What the header promises, held to it: NULL, errors, options of other sizes, bufs in every state, aggregates, the way back. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <tranship.h>
#include <tranship/admin.h>
#include <unistd.h>

#define EXPECT(is, wanted)                                                                         \
    do {                                                                                           \
        long long is_ = (long long)(is), wanted_ = (long long)(wanted);                            \
        if (is_ != wanted_) {                                                                      \
            fprintf(stderr, "%s:%d: %s is %lld, not %lld (%s)\n", __FILE__, __LINE__, #is, is_,    \
                    wanted_, tranship_error_message(error));                                       \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define OK(call) EXPECT(call, TRANSHIP_OK)

static tranship_error *error;
static char manager[108];

static void says(const char *what)
{
    const char *message = tranship_error_message(error);

    if (!strstr(message, what)) {
        fprintf(stderr, "the error says \"%s\", not \"%s\"\n", message, what);
        exit(1);
    }
}

static void null_is_an_error_or_nothing(void)
{
    tranship_buf buf = {0};
    tranship_domain *domain = (void *)1;

    EXPECT(tranship_connect(NULL, NULL, &error), TRANSHIP_ERR_BAD_ARGUMENT);
    says("out is NULL");
    EXPECT(tranship_pool_create(NULL, 1, NULL, NULL, &error), TRANSHIP_ERR_BAD_ARGUMENT);
    EXPECT(tranship_alloc(NULL, 1, TRANSHIP_NOW, &buf, &error), TRANSHIP_ERR_BAD_ARGUMENT);
    says("pool is NULL");
    EXPECT(tranship_alloc(NULL, 1, TRANSHIP_NOW, NULL, NULL), TRANSHIP_ERR_BAD_ARGUMENT);
    EXPECT(tranship_send(NULL, &buf, TRANSHIP_NOW, &error), TRANSHIP_ERR_BAD_ARGUMENT);
    EXPECT(tranship_send(NULL, NULL, TRANSHIP_NOW, &error), TRANSHIP_ERR_BAD_ARGUMENT);
    EXPECT(tranship_recv(NULL, TRANSHIP_NOW, &buf, &error), TRANSHIP_ERR_BAD_ARGUMENT);
    EXPECT(tranship_send_back(NULL, &buf, TRANSHIP_NOW, &error), TRANSHIP_ERR_BAD_ARGUMENT);
    EXPECT(tranship_listen(NULL, "x", TRANSHIP_SENDER, NULL, NULL, &error), TRANSHIP_ERR_BAD_ARGUMENT);
    EXPECT(tranship_poll(NULL, 1, TRANSHIP_NOW, NULL, &error), TRANSHIP_ERR_BAD_ARGUMENT);
    EXPECT(tranship_copy_out(NULL, 0, NULL, 0, &error), TRANSHIP_ERR_BAD_ARGUMENT);
    EXPECT(tranship_freeze(NULL, &error), TRANSHIP_ERR_BAD_ARGUMENT);
    EXPECT(tranship_domain_turn(NULL, &error), TRANSHIP_ERR_BAD_ARGUMENT);
    tranship_release(NULL);
    tranship_domain_close(NULL);
    tranship_pool_close(NULL);
    tranship_listener_close(NULL);
    tranship_sender_close(NULL);
    tranship_sender_abandon(NULL);
    tranship_receiver_close(NULL);
    EXPECT(tranship_domain_fd(NULL), -1);
    EXPECT(tranship_buf_id(NULL), 0);
    /* A handle that could not be made is NULL. */
    tranship_domain_options options = {.size = sizeof options, .socket = "/nowhere/at/all"};
    if (tranship_connect(&options, &domain, &error) == TRANSHIP_OK || domain != NULL)
        exit(1);
}

static void errors_say_what_is_wrong_and_go_when_all_is_well(tranship_pool *pool)
{
    tranship_buf buf;

    EXPECT(tranship_alloc(pool, (size_t)1 << 40, TRANSHIP_FOREVER, &buf, &error), TRANSHIP_ERR_TOO_LARGE);
    EXPECT(tranship_error_status(error), TRANSHIP_ERR_TOO_LARGE);
    EXPECT(tranship_error_errno(error), E2BIG);
    says("1099511627776");
    EXPECT(buf.kind, TRANSHIP_BUF_NONE);
    OK(tranship_alloc(pool, 10, TRANSHIP_FOREVER, &buf, &error));
    EXPECT(error == NULL, 1);
    EXPECT(tranship_error_status(error), TRANSHIP_OK);
    tranship_release(&buf);
    EXPECT(strcmp(tranship_strerror(TRANSHIP_ERR_FULL), "the channel is full"), 0);
    EXPECT(strcmp(tranship_strerror(TRANSHIP_OK), "success"), 0);
    EXPECT(strlen(tranship_strerror(-1)) > 0 && strlen(tranship_strerror(12345)) > 0, 1);
    EXPECT(strlen(tranship_advice(TRANSHIP_ERR_FULL)) > 0, 1);
}

static void options_can_grow(tranship_domain *domain)
{
    tranship_pool *pool;
    struct {
        tranship_pool_options known;
        uint64_t later;
    } newer = {.known = {.size = sizeof newer, .name = "newer"}};
    size_t old = sizeof old;

    OK(tranship_pool_create(domain, 1 << 20, &newer.known, &pool, &error));
    tranship_pool_close(pool);
    newer.later = 1;
    EXPECT(tranship_pool_create(domain, 1 << 20, &newer.known, &pool, &error), TRANSHIP_ERR_BAD_ARGUMENT);
    says("newer");
    OK(tranship_pool_create(domain, 1 << 20, (tranship_pool_options *)&old, &pool, &error));
    tranship_pool_close(pool);
    newer.known.size = 0;
    EXPECT(tranship_pool_create(domain, 1 << 20, &newer.known, &pool, &error), TRANSHIP_ERR_BAD_ARGUMENT);
    says("sizeof(tranship_pool_options)");
    tranship_pool_options odd = {.size = sizeof odd, .trust = 9};
    EXPECT(tranship_pool_create(domain, 1 << 20, &odd, &pool, &error), TRANSHIP_ERR_BAD_ARGUMENT);
    odd = (tranship_pool_options){.size = sizeof odd, .flags = 1u << 30};
    EXPECT(tranship_pool_create(domain, 1 << 20, &odd, &pool, &error), TRANSHIP_ERR_BAD_ARGUMENT);
    odd = (tranship_pool_options){.size = sizeof odd, .reserved = 1};
    EXPECT(tranship_pool_create(domain, 1 << 20, &odd, &pool, &error), TRANSHIP_ERR_BAD_ARGUMENT);
    says("reserved");
    tranship_domain_options join = {.size = sizeof join, .socket = manager, .reserved = 1};
    tranship_domain *other;
    EXPECT(tranship_connect(&join, &other, &error), TRANSHIP_ERR_BAD_ARGUMENT);
    says("reserved");
    tranship_poll_item item = {.kind = TRANSHIP_POLL_DOMAIN, .object = domain, .reserved = 1};
    EXPECT(tranship_poll(&item, 1, TRANSHIP_NOW, NULL, &error), TRANSHIP_ERR_BAD_ARGUMENT);
    says("reserved");
    item.reserved = 0;
    OK(tranship_poll(&item, 1, TRANSHIP_NOW, NULL, &error));
    EXPECT(tranship_poll(&item, SIZE_MAX / 16, TRANSHIP_NOW, NULL, &error), TRANSHIP_ERR_BAD_ARGUMENT);
    says("more than");
}

static void bufs_know_what_they_are(tranship_pool *pool)
{
    tranship_buf buf, again, part;
    char bytes[8] = {0};

    OK(tranship_alloc(pool, 8, TRANSHIP_FOREVER, &buf, &error));
    EXPECT(buf.kind, TRANSHIP_BUF_EXCLUSIVE);
    EXPECT(tranship_buf_clone(&buf, &again, &error), TRANSHIP_ERR_BAD_ARGUMENT);
    memcpy(tranship_data(&buf), "abcdefgh", 8);
    buf.len = 9;
    EXPECT(tranship_freeze(&buf, &error), TRANSHIP_ERR_BAD_ARGUMENT);
    buf.len = 6;
    OK(tranship_freeze(&buf, &error));
    EXPECT(buf.kind, TRANSHIP_BUF_SHARED);
    EXPECT(buf.len, 6);
    EXPECT(tranship_buf_clone(&buf, &buf, &error), TRANSHIP_ERR_BAD_ARGUMENT);
    says("the same place");
    EXPECT(tranship_buf_slice(&buf, 0, 1, &buf, &error), TRANSHIP_ERR_BAD_ARGUMENT);
    EXPECT(tranship_buf_clone(NULL, &part, &error), TRANSHIP_ERR_BAD_ARGUMENT);
    EXPECT(tranship_buf_clone(&buf, NULL, &error), TRANSHIP_ERR_BAD_ARGUMENT);
    EXPECT(tranship_buf_clone(NULL, NULL, &error), TRANSHIP_ERR_BAD_ARGUMENT);
    EXPECT(buf.kind, TRANSHIP_BUF_SHARED);
    OK(tranship_buf_slice(&buf, 2, 3, &part, &error));
    OK(tranship_copy_out(&part, 1, bytes, 2, &error));
    EXPECT(memcmp(bytes, "de", 3), 0);
    EXPECT(tranship_copy_out(&part, 1, bytes, 3, &error), TRANSHIP_ERR_BAD_ARGUMENT);
    EXPECT(tranship_buf_slice(&buf, 2, 5, &again, &error), TRANSHIP_ERR_BAD_ARGUMENT);
    EXPECT(tranship_buf_slice(&buf, SIZE_MAX, 2, &again, &error), TRANSHIP_ERR_BAD_ARGUMENT);
    EXPECT(tranship_unfreeze(&buf, &error), TRANSHIP_ERR_BUFFER_STATE); /* the part */
    EXPECT(buf.kind, TRANSHIP_BUF_SHARED);
    tranship_release(&part);
    OK(tranship_unfreeze(&buf, &error));
    EXPECT(buf.kind, TRANSHIP_BUF_EXCLUSIVE);
    tranship_release(&buf);
    tranship_release(&buf);
    EXPECT(tranship_freeze(&buf, &error), TRANSHIP_ERR_BAD_ARGUMENT);
    says("nothing");
    memset(&buf, 0xff, sizeof buf);
    EXPECT(tranship_freeze(&buf, &error), TRANSHIP_ERR_BAD_ARGUMENT);
}

static void *peer(void *unused)
{
    tranship_domain_options options = {.size = sizeof options, .name = "peer", .socket = manager};
    tranship_error *error = NULL;
    tranship_domain *domain;
    tranship_receiver *receiver;
    tranship_buf buf, piece;
    unsigned char bytes[10];
    const void *ptr;
    size_t len;

    OK(tranship_connect(&options, &domain, &error));
    OK(tranship_open_receiver(domain, "line", NULL, TRANSHIP_FOREVER, &receiver, &error));
    OK(tranship_recv(receiver, TRANSHIP_FOREVER, &buf, &error));
    EXPECT(buf.kind, TRANSHIP_BUF_INLINE);
    EXPECT(buf.len, 5);
    EXPECT(buf.word, 1);
    tranship_buf copy = buf; /* bitwise: its bytes go along */
    EXPECT(memcmp(tranship_data(&copy), "hello", 5), 0);
    OK(tranship_recv(receiver, TRANSHIP_MS(60000), &buf, &error));
    EXPECT(buf.kind, TRANSHIP_BUF_AGGREGATE);
    EXPECT(buf.len, 10);
    EXPECT(buf.word, 2);
    EXPECT(tranship_aggregate_count(&buf), 2);
    OK(tranship_aggregate_piece(&buf, 1, &ptr, &len, &error));
    EXPECT(len, 6);
    EXPECT(tranship_aggregate_piece(&buf, 2, &ptr, &len, &error), TRANSHIP_ERR_BAD_ARGUMENT);
    OK(tranship_aggregate_clone_piece(&buf, 1, &piece, &error));
    EXPECT(piece.kind, TRANSHIP_BUF_SHARED);
    EXPECT(tranship_data(&piece) == ptr, 1);
    tranship_release(&piece);
    EXPECT(tranship_aggregate_clone_piece(&buf, 2, &piece, &error), TRANSHIP_ERR_BAD_ARGUMENT);
    EXPECT(piece.kind, TRANSHIP_BUF_NONE);
    EXPECT(tranship_aggregate_clone_piece(&copy, 0, &piece, &error), TRANSHIP_ERR_BAD_ARGUMENT);
    OK(tranship_copy_out(&buf, 0, bytes, 10, &error));
    EXPECT(memcmp(bytes, "headabcdef", 10), 0);
    OK(tranship_copy_out(&buf, 3, bytes, 2, &error));
    EXPECT(memcmp(bytes, "da", 2), 0);
    tranship_release(&buf);
    EXPECT(tranship_recv(receiver, TRANSHIP_NOW, &buf, NULL), TRANSHIP_ERR_TIMED_OUT);
    EXPECT(tranship_recv(receiver, TRANSHIP_MS(1), &buf, &error), TRANSHIP_ERR_TIMED_OUT);
    EXPECT(tranship_error_errno(error), ETIMEDOUT);
    OK(tranship_send_back_bytes(receiver, "thanks", 6, 3, TRANSHIP_NOW, &error));
    OK(tranship_recv(receiver, TRANSHIP_FOREVER, &buf, &error)); /* the inline bytes, cut */
    EXPECT(buf.len == 4 && memcmp(tranship_data(&buf), "than", 4) == 0, 1);
    EXPECT(tranship_recv(receiver, TRANSHIP_FOREVER, &buf, &error), TRANSHIP_ERR_PEER_GONE);
    tranship_error_free(error);
    tranship_receiver_close(receiver);
    tranship_domain_close(domain);
    return unused;
}

static void messages_of_all_kinds(tranship_domain *domain, tranship_pool *pool)
{
    tranship_listener *listener;
    tranship_sender *sender;
    tranship_buf buf, head, all;
    tranship_pool_stats stats = {.size = sizeof stats};
    tranship_poll_item item = {.kind = TRANSHIP_POLL_SENDER};
    size_t ready;
    pthread_t thread;
    char many[41] = {0};

    OK(tranship_listen(domain, "line", TRANSHIP_SENDER, NULL, &listener, &error));
    EXPECT(tranship_accept_sender(listener, TRANSHIP_NOW, &sender, &error), TRANSHIP_ERR_TIMED_OUT);
    EXPECT(sender == NULL, 1);
    pthread_create(&thread, NULL, peer, NULL);
    OK(tranship_accept_sender(listener, TRANSHIP_FOREVER, &sender, &error));
    item.object = sender;
    OK(tranship_poll(&item, 1, TRANSHIP_FOREVER, &ready, &error));
    EXPECT(ready == 1 && item.ready == 1, 1);
    tranship_poll_item twice[2] = {item, item};
    EXPECT(tranship_poll(twice, 2, TRANSHIP_NOW, &ready, &error), TRANSHIP_ERR_BAD_ARGUMENT);
    OK(tranship_send_bytes(sender, "hello", 5, 1, TRANSHIP_FOREVER, &error));
    EXPECT(tranship_send_bytes(sender, many, 41, 1, TRANSHIP_NOW, &error), TRANSHIP_ERR_TOO_LARGE);
    OK(tranship_alloc(pool, 6, TRANSHIP_FOREVER, &buf, &error));
    memcpy(buf.ptr, "abcdef", 6);
    OK(tranship_alloc(pool, 100, TRANSHIP_FOREVER, &head, &error));
    memcpy(head.ptr, "head", head.len = 4);
    OK(tranship_aggregate(NULL, &all, &error));
    OK(tranship_aggregate_push_back(&all, &buf, &error));
    OK(tranship_aggregate_push_front(&all, &head, &error));
    EXPECT(head.kind, TRANSHIP_BUF_NONE);
    all.len = 9; /* a part of it is made of parts of its pieces */
    EXPECT(tranship_send(sender, &all, TRANSHIP_NOW, &error), TRANSHIP_ERR_BAD_ARGUMENT);
    says("buf.len is 9, and the aggregate has 10 bytes");
    EXPECT(tranship_copy_out(&all, 0, many, 1, &error), TRANSHIP_ERR_BAD_ARGUMENT);
    EXPECT(tranship_aggregate_push_back(&all, &head, &error), TRANSHIP_ERR_BAD_ARGUMENT);
    all.len = 10;
    all.word = 2;
    OK(tranship_send(sender, &all, TRANSHIP_FOREVER, &error));
    EXPECT(all.kind, TRANSHIP_BUF_NONE);
    EXPECT(tranship_send(sender, &all, TRANSHIP_NOW, &error), TRANSHIP_ERR_BAD_ARGUMENT);
    OK(tranship_recv_back(sender, TRANSHIP_FOREVER, &buf, &error));
    EXPECT(buf.kind == TRANSHIP_BUF_INLINE && buf.len == 6 && buf.word == 3, 1);
    buf.len = 20;
    EXPECT(tranship_send(sender, &buf, TRANSHIP_NOW, &error), TRANSHIP_ERR_BAD_ARGUMENT);
    says("buf.len is 20, and the buffer has 6 bytes");
    EXPECT(tranship_copy_out(&buf, 0, many, 7, &error), TRANSHIP_ERR_BAD_ARGUMENT);
    buf.len = 4;
    OK(tranship_send(sender, &buf, TRANSHIP_FOREVER, &error));
    OK(tranship_wait_taken(sender, TRANSHIP_FOREVER, &error));
    EXPECT(tranship_sender_queued(sender), 0);
    OK(tranship_admin_pool_stats(pool, &stats, &error));
    EXPECT(stats.allocs > 3 && stats.present_bytes > 0, 1);
    EXPECT(stats.max_bytes >= 1 << 20, 1);
    stats.size = 0;
    EXPECT(tranship_admin_pool_stats(pool, &stats, &error), TRANSHIP_ERR_BAD_ARGUMENT);
    tranship_sender_close(sender);
    pthread_join(thread, NULL);
    tranship_listener_close(listener);
}

static void *answers(void *of)
{
    tranship_receiver *receiver = of;
    tranship_error *error = NULL;
    tranship_buf buf;

    OK(tranship_send_back_bytes(receiver, "word", 4, 1, TRANSHIP_FOREVER, &error));
    OK(tranship_recv(receiver, TRANSHIP_NOW, &buf, &error));
    buf.word = 2;
    OK(tranship_send_back_released(receiver, &buf, TRANSHIP_FOREVER, &error));
    OK(tranship_recv(receiver, TRANSHIP_NOW, &buf, &error));
    buf.word = 3;
    OK(tranship_send_back(receiver, &buf, TRANSHIP_FOREVER, &error));
    EXPECT(buf.kind, TRANSHIP_BUF_NONE);
    OK(tranship_send_back_bytes(receiver, "last", 4, 4, TRANSHIP_MS(600000), &error));
    return NULL;
}

static void what_goes_back_waits_for_room(tranship_domain *domain, tranship_pool *pool)
{
    tranship_listener *listener;
    tranship_sender *sender;
    tranship_receiver *receiver;
    tranship_buf buf;
    tranship_status status;
    pthread_t thread;
    uint64_t full = 0;

    OK(tranship_listen(domain, "local:back", TRANSHIP_RECEIVER, NULL, &listener, &error));
    OK(tranship_open_sender(domain, "local:back", NULL, TRANSHIP_FOREVER, &sender, &error));
    OK(tranship_accept_receiver(listener, TRANSHIP_FOREVER, &receiver, &error));
    OK(tranship_send_bytes(sender, "first", 5, 0, TRANSHIP_NOW, &error));
    OK(tranship_alloc(pool, 100, TRANSHIP_FOREVER, &buf, &error));
    OK(tranship_send(sender, &buf, TRANSHIP_NOW, &error));
    while ((status = tranship_send_back_bytes(receiver, "word", 4, 0, TRANSHIP_NOW, &error)) == TRANSHIP_OK)
        full++;
    EXPECT(status, TRANSHIP_ERR_FULL);
    EXPECT(tranship_send_back_bytes(receiver, "word", 4, 0, TRANSHIP_MS(20), &error), TRANSHIP_ERR_FULL);
    says("waited ");
    EXPECT(atoi(strstr(tranship_error_message(error), "waited ") + 7) >= 20, 1);
    pthread_create(&thread, NULL, answers, receiver);
    for (uint64_t at = 0; at < full; at++) {
        OK(tranship_recv_back(sender, TRANSHIP_FOREVER, &buf, &error));
        EXPECT(buf.word, 0);
    }
    OK(tranship_recv_back(sender, TRANSHIP_FOREVER, &buf, &error));
    EXPECT(buf.kind == TRANSHIP_BUF_INLINE && buf.word == 1, 1);
    OK(tranship_recv_back(sender, TRANSHIP_FOREVER, &buf, &error));
    EXPECT(buf.kind == TRANSHIP_BUF_RELEASED && buf.word == 2, 1);
    OK(tranship_recv_back(sender, TRANSHIP_FOREVER, &buf, &error));
    EXPECT(buf.kind == TRANSHIP_BUF_EXCLUSIVE && buf.word == 3, 1);
    tranship_release(&buf);
    OK(tranship_recv_back(sender, TRANSHIP_FOREVER, &buf, &error));
    EXPECT(buf.word, 4);
    pthread_join(thread, NULL);
    tranship_receiver_close(receiver);
    tranship_sender_close(sender);
    tranship_listener_close(listener);
}

/* Its receiver alone reads it, so its buffers go over this channel only. */
static void a_channel_has_a_pool_of_its_own(tranship_domain *domain)
{
    tranship_listener *listener;
    tranship_sender *own, *other;
    tranship_receiver *receiver, *another;
    tranship_buf buf;

    OK(tranship_listen(domain, "local:own", TRANSHIP_RECEIVER, NULL, &listener, &error));
    OK(tranship_open_sender(domain, "local:own", NULL, TRANSHIP_FOREVER, &own, &error));
    OK(tranship_accept_receiver(listener, TRANSHIP_FOREVER, &receiver, &error));
    OK(tranship_open_sender(domain, "local:own", NULL, TRANSHIP_FOREVER, &other, &error));
    OK(tranship_accept_receiver(listener, TRANSHIP_FOREVER, &another, &error));
    EXPECT(tranship_sender_alloc(NULL, 1, TRANSHIP_NOW, &buf, &error), TRANSHIP_ERR_BAD_ARGUMENT);
    OK(tranship_sender_alloc(own, 100, TRANSHIP_FOREVER, &buf, &error));
    EXPECT(buf.kind == TRANSHIP_BUF_EXCLUSIVE && buf.len == 100, 1);
    memcpy(buf.ptr, "own", 3);
    EXPECT(tranship_send(other, &buf, TRANSHIP_NOW, &error), TRANSHIP_ERR_REFUSED);
    EXPECT(buf.kind, TRANSHIP_BUF_EXCLUSIVE);
    OK(tranship_send(own, &buf, TRANSHIP_NOW, &error));
    OK(tranship_recv(receiver, TRANSHIP_NOW, &buf, &error));
    EXPECT(memcmp(tranship_data(&buf), "own", 3), 0);
    tranship_release(&buf);
    tranship_receiver_close(receiver);
    tranship_receiver_close(another);
    tranship_sender_close(own);
    tranship_sender_close(other);
    tranship_listener_close(listener);
}

/* Each would wait for ever, had it been asked to. */
static void a_deadline_that_has_passed_is_now(tranship_domain *domain, tranship_pool *pool)
{
    static const int64_t passed[] = {-2, TRANSHIP_MS(-1), INT64_MIN};
    tranship_listener *listener, *nobodys;
    tranship_sender *sender, *unconnected;
    tranship_receiver *receiver;
    tranship_buf buf, all, more;
    tranship_status status;
    size_t ready;

    OK(tranship_listen(domain, "local:late", TRANSHIP_RECEIVER, NULL, &listener, &error));
    OK(tranship_listen(domain, "nobody-comes", TRANSHIP_RECEIVER, NULL, &nobodys, &error));
    OK(tranship_open_sender(domain, "local:late", NULL, TRANSHIP_FOREVER, &sender, &error));
    OK(tranship_accept_receiver(listener, TRANSHIP_FOREVER, &receiver, &error));
    OK(tranship_alloc(pool, 1 << 20, TRANSHIP_NOW, &all, &error));
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++) {
        int64_t time = passed[i];
        tranship_poll_item item = {.kind = TRANSHIP_POLL_RECEIVER, .object = receiver};

        EXPECT(tranship_alloc(pool, 1 << 20, time, &buf, &error), TRANSHIP_ERR_OUT_OF_MEMORY);
        EXPECT(tranship_accept_receiver(nobodys, time, &receiver, &error), TRANSHIP_ERR_TIMED_OUT);
        receiver = item.object;
        EXPECT(tranship_open_sender(domain, "nobody-listens", NULL, time, &unconnected, &error), TRANSHIP_ERR_TIMED_OUT);
        EXPECT(tranship_recv(receiver, time, &buf, &error), TRANSHIP_ERR_TIMED_OUT);
        EXPECT(tranship_recv_back(sender, time, &buf, &error), TRANSHIP_ERR_TIMED_OUT);
        OK(tranship_poll(&item, 1, time, &ready, &error));
        EXPECT(ready, 0);
    }
    tranship_release(&all);
    OK(tranship_alloc(pool, 100, TRANSHIP_NOW, &all, &error));
    OK(tranship_alloc(pool, 100, TRANSHIP_NOW, &buf, &error));
    OK(tranship_send(sender, &buf, TRANSHIP_NOW, &error));
    while ((status = tranship_send_bytes(sender, "word", 4, 0, TRANSHIP_NOW, &error)) == TRANSHIP_OK)
        ;
    EXPECT(status, TRANSHIP_ERR_FULL);
    OK(tranship_recv(receiver, TRANSHIP_NOW, &buf, &error));
    OK(tranship_send_bytes(sender, "word", 4, 0, TRANSHIP_NOW, &error)); /* in its place */
    OK(tranship_recv(receiver, TRANSHIP_NOW, &more, &error));
    while ((status = tranship_send_back_bytes(receiver, "word", 4, 0, TRANSHIP_NOW, &error)) == TRANSHIP_OK)
        ;
    EXPECT(status, TRANSHIP_ERR_FULL);
    while (tranship_send_bytes(sender, "word", 4, 0, TRANSHIP_NOW, NULL) == TRANSHIP_OK)
        ;
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++) {
        int64_t time = passed[i];

        EXPECT(tranship_send_bytes(sender, "word", 4, 0, time, &error), TRANSHIP_ERR_FULL);
        EXPECT(tranship_send(sender, &all, time, &error), TRANSHIP_ERR_FULL);
        EXPECT(tranship_send(sender, &more, time, &error), TRANSHIP_ERR_FULL);
        EXPECT(tranship_wait_taken(sender, time, &error), TRANSHIP_ERR_TIMED_OUT);
        EXPECT(tranship_send_back_bytes(receiver, "word", 4, 0, time, &error), TRANSHIP_ERR_FULL);
        EXPECT(tranship_send_back(receiver, &buf, time, &error), TRANSHIP_ERR_FULL);
        EXPECT(tranship_send_back_released(receiver, &more, time, &error), TRANSHIP_ERR_FULL);
    }
    tranship_release(&all);
    tranship_release(&buf);
    tranship_release(&more);
    tranship_receiver_close(receiver);
    tranship_sender_close(sender);
    tranship_listener_close(listener);
    tranship_listener_close(nobodys);
}

static void a_forked_child_is_told(tranship_domain *domain, tranship_pool *pool)
{
    tranship_buf buf;
    int status;
    pid_t child = fork();

    if (child == 0) {
        int good = tranship_alloc(pool, 1, TRANSHIP_NOW, &buf, NULL) == TRANSHIP_ERR_FORKED &&
                   tranship_domain_turn(domain, NULL) == TRANSHIP_ERR_FORKED;
        tranship_pool_close(pool);
        tranship_domain_close(domain);
        _exit(!good);
    }
    waitpid(child, &status, 0);
    EXPECT(status, 0);
}

static void who_wants_the_newest_gets_it(tranship_domain *domain)
{
    tranship_channel_options two = {.size = sizeof two, .lines = 2};
    tranship_listener *listener;
    tranship_sender *sender;
    tranship_receiver *receiver;
    tranship_buf buf;

    OK(tranship_listen(domain, "local:newest", TRANSHIP_RECEIVER, NULL, &listener, &error));
    OK(tranship_open_sender(domain, "local:newest", &two, TRANSHIP_FOREVER, &sender, &error));
    OK(tranship_accept_receiver(listener, TRANSHIP_FOREVER, &receiver, &error));
    EXPECT(tranship_sender_set_when_full(sender, 3, &error), TRANSHIP_ERR_BAD_ARGUMENT);
    says("TRANSHIP_WHEN_FULL_DROP_OLDEST");
    OK(tranship_sender_set_when_full(sender, TRANSHIP_WHEN_FULL_DROP_OLDEST, &error));
    for (uint64_t number = 0; number < 5; number++)
        OK(tranship_send_bytes(sender, "x", 1, number, TRANSHIP_FOREVER, &error));
    EXPECT(tranship_sender_dropped(sender), 3);
    EXPECT(tranship_send_bytes(sender, "x", 1, 9, TRANSHIP_NOW, &error), TRANSHIP_ERR_FULL);
    OK(tranship_recv(receiver, TRANSHIP_NOW, &buf, &error));
    EXPECT(buf.word, 1);
    tranship_release(&buf);
    EXPECT(tranship_receiver_skipped(receiver), 1);
    EXPECT(tranship_recv(receiver, TRANSHIP_NOW, &buf, &error), TRANSHIP_ERR_TIMED_OUT);
    EXPECT(tranship_sender_dropped(NULL) + tranship_receiver_skipped(NULL), 0);
    tranship_sender_close(sender);
    tranship_receiver_close(receiver);
    tranship_listener_close(listener);
}

int main(void)
{
    tranship_domain *domain;
    tranship_pool *pool;
    char first[4];

    null_is_an_error_or_nothing();
    OK(tranship_embedded(NULL, &domain, &error));
    size_t whole = tranship_domain_socket(domain, manager, sizeof manager);
    EXPECT(whole == strlen(manager) && whole > 0, 1);
    EXPECT(tranship_domain_socket(domain, first, sizeof first), whole);
    EXPECT(strlen(first), 3);
    OK(tranship_pool_create(domain, 1 << 20, NULL, &pool, &error));
    errors_say_what_is_wrong_and_go_when_all_is_well(pool);
    options_can_grow(domain);
    bufs_know_what_they_are(pool);
    messages_of_all_kinds(domain, pool);
    what_goes_back_waits_for_room(domain, pool);
    a_channel_has_a_pool_of_its_own(domain);
    a_deadline_that_has_passed_is_now(domain, pool);
    who_wants_the_newest_gets_it(domain);
    a_forked_child_is_told(domain, pool);
    tranship_domain_close(domain); /* in whatever order */
    tranship_pool_close(pool);
    tranship_error_free(error);
    puts("all as promised");
    return 0;
}
