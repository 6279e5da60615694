/* Messages of the type `Frame`, as frame.h has it: `typed offer WAY NAME` offers one again and again, `typed take WAY NAME` takes one and prints it, or why not.
 * WAY is topic, queue or service. THIRD is the third field. */
#include "frame.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tranship/queue.h>
#include <tranship/service.h>
#include <tranship/topic.h>
#include <unistd.h>

static const Frame FRAME = {.taken_ns = 1, .width = 640, .THIRD = 480};
static tranship_error *error;

static void ok(tranship_status status)
{
    if (status != TRANSHIP_OK) {
        printf("%d %s\n", status, tranship_error_message(error));
        exit(status != TRANSHIP_ERR_CHANNEL_BIND);
    }
}

static void show(tranship_buf *buf)
{
    Frame frame;

    ok(tranship_copy_out(buf, 0, &frame, sizeof frame, &error));
    printf("%llu %u %u\n", (unsigned long long)frame.taken_ns, frame.width, frame.THIRD);
    tranship_release(buf);
}

static void topic(tranship_domain *domain, const char *name, int offers)
{
    if (offers) {
        tranship_topic_options options = {.size = sizeof options, .history = 1, .message_type = FRAME_MESSAGE_TYPE};
        tranship_publisher *publisher;
        ok(tranship_publish(domain, name, &options, &publisher, &error));
        ok(tranship_publisher_send_bytes(publisher, &FRAME, sizeof FRAME, 0, &error));
        for (;;)
            pause();
    } else {
        tranship_subscriber_options options = {.size = sizeof options, .message_type = FRAME_MESSAGE_TYPE};
        tranship_subscriber *subscriber;
        tranship_buf buf;
        ok(tranship_subscribe(domain, name, &options, &subscriber, &error));
        ok(tranship_subscriber_recv(subscriber, TRANSHIP_FOREVER, &buf, &error));
        show(&buf);
    }
}

static void queue(tranship_domain *domain, const char *name, int offers)
{
    if (offers) {
        tranship_queue_options options = {.size = sizeof options, .message_type = FRAME_MESSAGE_TYPE};
        tranship_producer *producer;
        ok(tranship_produce(domain, name, &options, &producer, &error));
        for (;;) {
            ok(tranship_producer_send_bytes(producer, &FRAME, sizeof FRAME, 0, TRANSHIP_FOREVER, &error));
            ok(tranship_producer_wait_done(producer, TRANSHIP_FOREVER, &error));
        }
    } else {
        tranship_consumer_options options = {.size = sizeof options, .message_type = FRAME_MESSAGE_TYPE};
        tranship_consumer *consumer;
        tranship_item *item;
        tranship_buf buf;
        ok(tranship_consume(domain, name, &options, &consumer, &error));
        ok(tranship_consumer_recv(consumer, TRANSHIP_FOREVER, &buf, &item, &error));
        show(&buf);
        ok(tranship_item_ack(item, &error));
    }
}

static void service(tranship_domain *domain, const char *name, int offers)
{
    tranship_service_options options = {.size = sizeof options, .request_type = FRAME_MESSAGE_TYPE, .answer_type = FRAME_MESSAGE_TYPE};
    tranship_buf asked, answer;

    if (offers) {
        tranship_service *service;
        ok(tranship_serve(domain, name, &options, &service, &error));
        for (;;) {
            tranship_request *request;
            ok(tranship_service_recv(service, TRANSHIP_FOREVER, &request, &error));
            ok(tranship_request_take(request, &asked, &error));
            ok(tranship_request_alloc(request, sizeof(Frame), &answer, &error));
            ok(tranship_copy_out(&asked, 0, tranship_data(&answer), sizeof(Frame), &error));
            tranship_release(&asked);
            ok(tranship_request_reply(request, &answer, &error));
        }
    } else {
        tranship_client *client;
        ok(tranship_open_client(domain, name, &options, TRANSHIP_FOREVER, &client, &error));
        ok(tranship_client_alloc(client, sizeof(Frame), &asked, &error));
        memcpy(tranship_data(&asked), &FRAME, sizeof FRAME);
        ok(tranship_client_call(client, 0, &asked, TRANSHIP_FOREVER, &answer, &error));
        show(&answer);
    }
}

int main(int argc, char **argv)
{
    tranship_domain_options options = {.size = sizeof options, .flags = TRANSHIP_DOMAIN_HELPER_THREAD};
    tranship_domain *domain;
    void (*way)(tranship_domain *, const char *, int);

    if (argc != 4)
        return 2;
    way = strcmp(argv[2], "topic") == 0 ? topic : strcmp(argv[2], "queue") == 0 ? queue : service;
    ok(tranship_connect(&options, &domain, &error));
    way(domain, argv[3], strcmp(argv[1], "offer") == 0);
    return 0;
}
