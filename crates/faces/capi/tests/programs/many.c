/* Many messages by one call, in both directions; subscribers and consumers among what is polled; late subscribers. */
#include <stdint.h>
#include <string.h>
#include <tranship/queue.h>
#include <tranship/topic.h>

#include "check.h"

static tranship_error *error;

#define OK(call)                                                                                    \
    do {                                                                                            \
        if ((call) != TRANSHIP_OK) {                                                                \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, tranship_error_message(error));      \
            exit(1);                                                                                \
        }                                                                                           \
    } while (0)

static void messages(tranship_domain *domain)
{
    tranship_listener *listener = NULL;
    tranship_sender *sender = NULL;
    tranship_receiver *receiver = NULL;
    tranship_channel_options options = {.size = sizeof options, .lines = 8};
    tranship_buf bufs[12] = {0}, came[12];
    size_t sent = 99, received = 99;

    OK(tranship_listen(domain, "local:many", TRANSHIP_RECEIVER, &options, &listener, &error));
    OK(tranship_open_sender(domain, "local:many", &options, TRANSHIP_FOREVER, &sender, &error));
    OK(tranship_accept_receiver(listener, TRANSHIP_FOREVER, &receiver, &error));
    for (size_t i = 0; i < 12; i++) {
        OK(tranship_sender_alloc(sender, 100, TRANSHIP_FOREVER, &bufs[i], &error));
        memset(tranship_data(&bufs[i]), (int)i, 100);
        bufs[i].word = i;
        if (i % 2)
            OK(tranship_freeze(&bufs[i], &error));
    }
    EXPECT(tranship_recv_many(receiver, TRANSHIP_NOW, came, 12, &received, &error), TRANSHIP_ERR_TIMED_OUT);
    EXPECT(received, 0);
    EXPECT(tranship_send_many(sender, bufs, 12, TRANSHIP_NOW, &sent, &error), TRANSHIP_ERR_FULL);
    EXPECT(sent, 8);
    EXPECT(bufs[7].kind, TRANSHIP_BUF_NONE);
    EXPECT(bufs[8].kind, TRANSHIP_BUF_EXCLUSIVE);
    EXPECT(bufs[9].kind, TRANSHIP_BUF_SHARED);
    OK(tranship_recv_many(receiver, TRANSHIP_FOREVER, came, 3, &received, &error));
    EXPECT(received, 3);
    OK(tranship_recv_many(receiver, TRANSHIP_FOREVER, came + 3, 9, &received, &error));
    EXPECT(received, 5);
    for (size_t i = 0; i < 8; i++) {
        EXPECT(came[i].word, i);
        EXPECT(*(unsigned char *)tranship_data(&came[i]), i);
        tranship_release(&came[i]);
    }
    EXPECT(came[8].kind, TRANSHIP_BUF_NONE);
    OK(tranship_send_many(sender, bufs + 8, 4, TRANSHIP_FOREVER, NULL, &error));
    /* A buf that holds nothing: those before it go. */
    OK(tranship_sender_alloc(sender, 100, TRANSHIP_FOREVER, &bufs[0], &error));
    EXPECT(tranship_send_many(sender, bufs, 2, TRANSHIP_FOREVER, &sent, &error), TRANSHIP_ERR_BAD_ARGUMENT);
    EXPECT(sent, 1);
    EXPECT(tranship_send_many(sender, NULL, 2, TRANSHIP_FOREVER, &sent, &error), TRANSHIP_ERR_BAD_ARGUMENT);
    tranship_sender_close(sender);
    OK(tranship_recv_many(receiver, TRANSHIP_FOREVER, came, 12, &received, &error));
    EXPECT(received, 5);
    for (size_t i = 0; i < 5; i++)
        tranship_release(&came[i]);
    EXPECT(tranship_recv_many(receiver, TRANSHIP_FOREVER, came, 12, &received, &error), TRANSHIP_ERR_PEER_GONE);
    tranship_receiver_close(receiver);
    tranship_listener_close(listener);
}

static void polled(tranship_domain *domain)
{
    tranship_publisher *publisher = NULL;
    tranship_subscriber *subscriber = NULL;
    tranship_producer *producer = NULL;
    tranship_consumer *consumer = NULL;
    tranship_item *item = NULL;
    tranship_buf buf;
    size_t ready = 99;

    OK(tranship_publish(domain, "news", NULL, &publisher, &error));
    OK(tranship_subscribe(domain, "news", NULL, &subscriber, &error));
    OK(tranship_produce(domain, "jobs", NULL, &producer, &error));
    OK(tranship_consume(domain, "jobs", NULL, &consumer, &error));
    tranship_poll_item items[] = {
        {.kind = TRANSHIP_POLL_SUBSCRIBER, .object = subscriber},
        {.kind = TRANSHIP_POLL_CONSUMER, .object = consumer},
    };
    do { /* they join */
        OK(tranship_publisher_tend(publisher, &error));
        OK(tranship_producer_tend(producer, &error));
        OK(tranship_poll(items, 2, TRANSHIP_NOW, &ready, &error));
        EXPECT(ready, 0);
    } while (tranship_publisher_subscribers(publisher) == 0);
    OK(tranship_producer_send_bytes(producer, "job", 3, 7, TRANSHIP_FOREVER, &error));
    OK(tranship_poll(items, 2, TRANSHIP_FOREVER, &ready, &error));
    EXPECT(items[0].ready, 0);
    EXPECT(items[1].ready, 1);
    OK(tranship_consumer_recv(consumer, TRANSHIP_NOW, &buf, &item, &error));
    EXPECT(buf.word, 7);
    tranship_release(&buf);
    OK(tranship_item_ack(item, &error));
    OK(tranship_publisher_send_bytes(publisher, "news", 4, 8, &error));
    OK(tranship_poll(items, 2, TRANSHIP_FOREVER, &ready, &error));
    EXPECT(items[0].ready, 1);
    OK(tranship_subscriber_recv(subscriber, TRANSHIP_NOW, &buf, &error));
    EXPECT(buf.word, 8);
    tranship_release(&buf);
    items[1] = items[0];
    EXPECT(tranship_poll(items, 2, TRANSHIP_NOW, &ready, &error), TRANSHIP_ERR_BAD_ARGUMENT);
    tranship_subscriber_close(subscriber);
    tranship_publisher_close(publisher);
    tranship_consumer_close(consumer);
    tranship_producer_close(producer);
}

static tranship_subscriber *joined(tranship_domain *domain, tranship_publisher *publisher,
                                   tranship_subscriber_options options)
{
    tranship_subscriber *subscriber = NULL;

    options.size = sizeof options;
    OK(tranship_subscribe(domain, "late", &options, &subscriber, &error));
    OK(tranship_publisher_wait_for(publisher, 1, TRANSHIP_FOREVER, &error));
    return subscriber;
}

/* What a late subscriber gets, and a send that waits as it is told. */
static void late(tranship_domain *domain)
{
    tranship_topic_options options = {
        .size = sizeof options, .depth = 4, .history = 3, .when_behind = TRANSHIP_BEHIND_WAIT, .wait_ns = TRANSHIP_FOREVER};
    const struct {
        tranship_subscriber_options options;
        uint64_t first;
    } asked[] = {
        {{.flags = 0}, 1},
        {{.history = 2}, 2},
        {{.flags = TRANSHIP_SUBSCRIBER_NO_HISTORY}, 4},
    };
    tranship_publisher *publisher = NULL;
    tranship_subscriber *subscriber = NULL;
    tranship_buf buf, got;

    OK(tranship_publish(domain, "late", &options, &publisher, &error));
    for (uint64_t i = 0; i < 4; i++)
        OK(tranship_publisher_send_bytes(publisher, "x", 1, i, &error));
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        subscriber = joined(domain, publisher, asked[i].options);
        for (uint64_t word = asked[i].first; word < 4; word++) {
            OK(tranship_subscriber_recv(subscriber, TRANSHIP_FOREVER, &got, &error));
            EXPECT(got.word, word);
            tranship_release(&got);
        }
        EXPECT(tranship_subscriber_recv(subscriber, TRANSHIP_NOW, &got, &error), TRANSHIP_ERR_TIMED_OUT);
        tranship_subscriber_close(subscriber);
        while (tranship_publisher_subscribers(publisher) > 0)
            OK(tranship_publisher_tend(publisher, &error));
    }
    subscriber = joined(domain, publisher,
                        (tranship_subscriber_options){.flags = TRANSHIP_SUBSCRIBER_RELIABLE | TRANSHIP_SUBSCRIBER_NO_HISTORY});
    for (uint64_t i = 0; i < 5; i++) {
        OK(tranship_publisher_alloc(publisher, 100, TRANSHIP_FOREVER, &buf, &error));
        buf.word = i;
        if (i < 4)
            OK(tranship_publisher_send_timeout(publisher, &buf, TRANSHIP_NOW, &error));
    }
    EXPECT(tranship_publisher_send_timeout(publisher, &buf, TRANSHIP_NOW, &error), TRANSHIP_ERR_FULL);
    EXPECT(strstr(tranship_error_message(error), "behind") != NULL, 1);
    EXPECT(tranship_publisher_send_timeout(publisher, &buf, 1000, &error), TRANSHIP_ERR_TIMED_OUT);
    EXPECT(buf.word, 4);
    OK(tranship_subscriber_recv(subscriber, TRANSHIP_FOREVER, &got, &error));
    EXPECT(got.word, 0);
    tranship_release(&got);
    OK(tranship_publisher_send_timeout(publisher, &buf, TRANSHIP_FOREVER, &error));
    EXPECT(buf.kind, TRANSHIP_BUF_NONE);
    for (uint64_t word = 1; word < 5; word++) {
        OK(tranship_subscriber_recv(subscriber, TRANSHIP_FOREVER, &got, &error));
        EXPECT(got.word, word);
        tranship_release(&got);
    }
    tranship_subscriber_close(subscriber);
    tranship_publisher_close(publisher);
}

int main(void)
{
    tranship_domain *domain = NULL;

    OK(tranship_embedded(NULL, &domain, &error));
    messages(domain);
    polled(domain);
    late(domain);
    tranship_error_free(error);
    tranship_domain_close(domain);
    puts("all as it should");
    return 0;
}
