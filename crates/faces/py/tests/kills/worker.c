/*
 * One end of a channel, in C; worker.py is the same in Python.
 *
 *   worker send|receive NAME serve DOMAIN        serves one client after the other, until that domain has connected;
 *                                                reports each client, its end, and its number of messages
 *   worker send|receive NAME once LEVEL COUNT    connects; ends in order after COUNT messages, of 0 never; a sender's pool is of that level
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tranship.h>

#define POOL ((uint64_t)4 << 20)
#define KEPT 5

static tranship_error *error;
static tranship_domain *domain;
static tranship_pool *pool;

static void say(const char *word, uint32_t number)
{
    printf("%s %" PRIu32 "\n", word, number);
    fflush(stdout);
}

static int failed(const char *what)
{
    fprintf(stderr, "worker.c: %s: %s\n", what, error ? tranship_error_message(error) : "wrong bytes");
    return 2;
}

static size_t length(uint64_t number)
{
    return number % 16 == 15 ? 200000 : 100 + number * 37 % 100 * 100;
}

static tranship_status filled(uint64_t number, size_t len, tranship_buf *buf)
{
    tranship_status status = tranship_alloc(pool, len, TRANSHIP_FOREVER, buf, &error);
    if (status == TRANSHIP_OK)
        memset(buf->ptr, (int)(number % 256), len);
    return status;
}

/* By turns a buffer that is shared, one that is moved, and two as one message. */
static tranship_status send_one(tranship_sender *sender, uint64_t number)
{
    size_t len = length(number), first = number % 3 == 2 ? len / 3 : len;
    tranship_buf buf = {0}, rest = {0}, both = {0};
    tranship_status status = filled(number, first, &buf);

    if (status == TRANSHIP_OK && first < len) {
        if ((status = filled(number, len - first, &rest)) == TRANSHIP_OK &&
            (status = tranship_aggregate(pool, &both, &error)) == TRANSHIP_OK &&
            (status = tranship_aggregate_push_back(&both, &buf, &error)) == TRANSHIP_OK)
            status = tranship_aggregate_push_back(&both, &rest, &error);
        if (status == TRANSHIP_OK) {
            both.word = number;
            status = tranship_send(sender, &both, TRANSHIP_FOREVER, &error);
        }
    } else if (status == TRANSHIP_OK) {
        buf.word = number;
        if (number % 3 != 1)
            status = tranship_freeze(&buf, &error);
        if (status == TRANSHIP_OK)
            status = tranship_send(sender, &buf, TRANSHIP_FOREVER, &error);
    }
    tranship_release(&buf);
    tranship_release(&rest);
    tranship_release(&both);
    return status;
}

static tranship_status sends(tranship_sender *sender, uint64_t count, uint64_t *number)
{
    tranship_status status = TRANSHIP_OK;
    tranship_buf back = {0};

    for (*number = 0; !count || *number < count; ++*number) {
        if ((status = send_one(sender, *number)) != TRANSHIP_OK)
            break;
        while (tranship_recv_back(sender, TRANSHIP_NOW, &back, NULL) == TRANSHIP_OK)
            tranship_release(&back);
    }
    return status;
}

/* Every byte of it is right. */
static int is_right(tranship_buf *buf, uint64_t number)
{
    static unsigned char bytes[200000];
    if (buf->word != number || buf->len != length(number) || tranship_copy_out(buf, 0, bytes, buf->len, &error) != TRANSHIP_OK)
        return 0;
    for (size_t at = 0; at < buf->len; at++)
        if (bytes[at] != number % 256)
            return 0;
    return 1;
}

static tranship_status receives(tranship_receiver *receiver, uint64_t count, uint64_t *number)
{
    tranship_status status = TRANSHIP_OK;
    tranship_buf kept[KEPT] = {0};

    for (*number = 0; !count || *number < count; ++*number) {
        tranship_buf *buf = &kept[*number % KEPT];
        tranship_release(buf);
        if ((status = tranship_recv(receiver, TRANSHIP_FOREVER, buf, &error)) != TRANSHIP_OK)
            break;
        if (!is_right(buf, *number))
            exit(failed("a message"));
        if (buf->kind == TRANSHIP_BUF_EXCLUSIVE)
            ++*(unsigned char *)buf->ptr;
        if (*number % 3 == 1 && *number % 2)
            tranship_send_back(receiver, buf, TRANSHIP_NOW, NULL); /* given away; what cannot be handed back is kept */
    }
    for (size_t at = 0; at < KEPT; at++)
        tranship_release(&kept[at]);
    return status;
}

static int serve(const char *name, int source, uint32_t last)
{
    tranship_listener *listener;
    uint32_t peer;

    if (tranship_listen(domain, name, source ? TRANSHIP_SENDER : TRANSHIP_RECEIVER, NULL, &listener, &error) != TRANSHIP_OK)
        return failed("listen");
    do {
        tranship_sender *sender = NULL;
        tranship_receiver *receiver = NULL;
        tranship_status status;
        uint64_t number = 0;

        status = source ? tranship_accept_sender(listener, TRANSHIP_FOREVER, &sender, &error)
                        : tranship_accept_receiver(listener, TRANSHIP_FOREVER, &receiver, &error);
        if (status != TRANSHIP_OK)
            return failed("accept");
        peer = source ? tranship_sender_peer(sender) : tranship_receiver_peer(receiver);
        status = source ? sends(sender, 0, &number) : receives(receiver, 0, &number);
        if (status != TRANSHIP_ERR_PEER_GONE && status != TRANSHIP_ERR_PEER_DIED)
            return failed("the channel");
        tranship_sender_close(sender);
        tranship_receiver_close(receiver);
        if (source) {
            /* The whole pool can be had again, or this waits for ever. */
            tranship_buf all = {0};
            if (tranship_alloc(pool, POOL, TRANSHIP_FOREVER, &all, &error) != TRANSHIP_OK)
                return failed("the whole pool");
            tranship_release(&all);
        }
        printf("%" PRIu32 " %s %" PRIu64 "\n", peer, status == TRANSHIP_ERR_PEER_DIED ? "died" : "gone", number);
        fflush(stdout);
    } while (peer != last);
    tranship_listener_close(listener);
    return 0;
}

static int once(const char *name, int source, uint64_t count)
{
    tranship_sender *sender = NULL;
    tranship_receiver *receiver = NULL;
    tranship_status status;
    uint64_t number = 0;

    status = source ? tranship_open_sender(domain, name, NULL, TRANSHIP_FOREVER, &sender, &error)
                    : tranship_open_receiver(domain, name, NULL, TRANSHIP_FOREVER, &receiver, &error);
    if (status != TRANSHIP_OK)
        return failed("open");
    say("open", 0);
    status = source ? sends(sender, count, &number) : receives(receiver, count, &number);
    if (status != TRANSHIP_OK)
        return failed("the channel");
    tranship_sender_close(sender);
    tranship_receiver_close(receiver);
    return 0;
}

int main(int argc, char **argv)
{
    tranship_pool_options options = {.size = sizeof options, .name = "worker", .chunk_bytes = 1 << 16, .keep_bytes = POOL, .preallocate_bytes = POOL};
    int ended, source;

    if (argc < 5)
        return 2;
    source = strcmp(argv[1], "send") == 0;
    options.trust = argc > 5 ? (uint32_t)atoi(argv[4]) : 0;
    if (tranship_connect(NULL, &domain, &error) != TRANSHIP_OK)
        return failed("connect");
    say("joined", tranship_domain_id(domain));
    if (source && tranship_pool_create(domain, POOL, &options, &pool, &error) != TRANSHIP_OK)
        return failed("pool");
    ended = argc > 5 ? once(argv[2], source, (uint64_t)atoi(argv[5])) : serve(argv[2], source, (uint32_t)atoi(argv[4]));
    tranship_pool_close(pool);
    tranship_domain_close(domain);
    tranship_error_free(error);
    return ended;
}
