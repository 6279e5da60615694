/* A frame changes its owner: it is given away to a second domain, written there, and handed back. The second one is a thread, to have it all
 * in one file; in life it is a process. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <tranship.h>

#define CHECK(call)                                                                                \
    do {                                                                                           \
        if ((call) != TRANSHIP_OK) {                                                               \
            fprintf(stderr, "move: %s: %s\n", #call, tranship_error_message(error));               \
            return error;                                                                          \
        }                                                                                          \
    } while (0)

static char manager[108]; /* its socket */
static atomic_bool ended;  /* the filter's thread has */

static void *filtered(void)
{
    tranship_error *error = NULL;
    tranship_domain *domain;
    tranship_receiver *receiver;
    tranship_buf frame;
    tranship_domain_options options = {.size = sizeof options, .name = "filter", .socket = manager};

    CHECK(tranship_connect(&options, &domain, &error));
    CHECK(tranship_open_receiver(domain, "raw", NULL, TRANSHIP_FOREVER, &receiver, &error));
    CHECK(tranship_recv(receiver, TRANSHIP_FOREVER, &frame, &error));
    if (frame.kind != TRANSHIP_BUF_EXCLUSIVE)
        return manager; /* not NULL: it went wrong */
    memset(frame.ptr, 2, frame.len); /* the same memory, now the filter's */
    frame.word = 42;
    CHECK(tranship_send_back(receiver, &frame, TRANSHIP_FOREVER, &error));
    tranship_receiver_close(receiver);
    tranship_domain_close(domain);
    return NULL;
}

static void *filter(void *unused)
{
    void *wrong = filtered();

    (void)unused;
    atomic_store(&ended, 1);
    return wrong;
}

static void *camera(void)
{
    tranship_error *error = NULL;
    tranship_status status;
    tranship_domain *domain;
    tranship_pool *pool;
    tranship_listener *listener;
    tranship_sender *sender;
    tranship_buf frame;
    pthread_t thread;
    void *wrong = NULL;
    tranship_pool_options options = {.size = sizeof options, .trust = TRANSHIP_TRUST_FULL}; /* all may write */

    CHECK(tranship_embedded(NULL, &domain, &error));
    tranship_domain_socket(domain, manager, sizeof manager);
    CHECK(tranship_pool_create(domain, 1 << 20, &options, &pool, &error));
    CHECK(tranship_listen(domain, "raw", TRANSHIP_SENDER, NULL, &listener, &error));
    if (pthread_create(&thread, NULL, filter, NULL) != 0)
        return domain;
    do /* in turns: the filter may have failed before it opened */
        status = tranship_accept_sender(listener, TRANSHIP_MS(100), &sender, &error);
    while (status == TRANSHIP_ERR_TIMED_OUT && !atomic_load(&ended));
    CHECK(status);

    CHECK(tranship_alloc(pool, 4096, TRANSHIP_FOREVER, &frame, &error));
    memset(frame.ptr, 1, frame.len);
    CHECK(tranship_send(sender, &frame, TRANSHIP_FOREVER, &error));
    pthread_join(thread, &wrong);
    CHECK(tranship_recv_back(sender, TRANSHIP_FOREVER, &frame, &error)); /* also when the receiver is gone */
    printf("back: %zu bytes of %d, word %d\n", frame.len, *(const unsigned char *)frame.ptr, (int)frame.word);
    tranship_release(&frame);

    tranship_sender_close(sender);
    tranship_listener_close(listener);
    tranship_pool_close(pool);
    tranship_domain_close(domain);
    return wrong;
}

int main(void)
{
    return camera() != NULL;
}
