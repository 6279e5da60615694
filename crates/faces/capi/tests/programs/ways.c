/* What the headers of topics, services and queues promise, between two domains of one process. */
#include "check.h"
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <tranship/queue.h>
#include <tranship/service.h>
#include <tranship/topic.h>

static tranship_error *error;
static tranship_domain *here, *there;

#define CHECK(so) EXPECT(!!(so), 1)

static void ok(tranship_status status, const char *what)
{
    if (status != TRANSHIP_OK) {
        printf("%s: %d %s\n", what, status, tranship_error_message(error));
        exit(1);
    }
}

#define OK(call) ok((call), #call)

static void topics(void)
{
    tranship_publisher *publisher, *second;
    tranship_subscriber *subscriber;
    tranship_topic_options options = {.size = sizeof options, .depth = 2, .when_behind = TRANSHIP_BEHIND_DROP_NEW, .slots = 8};
    tranship_subscriber_options reliable = {.size = sizeof reliable, .flags = TRANSHIP_SUBSCRIBER_RELIABLE};
    tranship_buf buf, got;

    OK(tranship_publish(here, "log", &options, &publisher, &error));
    CHECK(tranship_publish(there, "log", NULL, &second, &error) == TRANSHIP_ERR_NAME_TAKEN && second == NULL);
    options.depth = 3;
    CHECK(tranship_publish(here, "odd", &options, &second, &error) == TRANSHIP_ERR_BAD_ARGUMENT);
    options.depth = 2;
    options.when_behind = 7;
    CHECK(tranship_publish(here, "odd", &options, &second, &error) == TRANSHIP_ERR_BAD_ARGUMENT);
    reliable.flags |= 8;
    CHECK(tranship_subscribe(there, "log", &reliable, &subscriber, &error) == TRANSHIP_ERR_BAD_ARGUMENT);
    reliable.flags = TRANSHIP_SUBSCRIBER_RELIABLE;
    OK(tranship_subscribe(there, "log", &reliable, &subscriber, &error));
    CHECK(tranship_publisher_wait_for(publisher, 1, TRANSHIP_NOW, &error) == TRANSHIP_ERR_TIMED_OUT);
    CHECK(strstr(tranship_error_message(error), "topic `log` has 0 subscribers, not 1") != NULL);
    while (tranship_publisher_subscribers(publisher) == 0) {
        CHECK(tranship_subscriber_recv(subscriber, TRANSHIP_NOW, &got, &error) == TRANSHIP_ERR_TIMED_OUT);
        CHECK(got.kind == TRANSHIP_BUF_NONE);
        OK(tranship_publisher_tend(publisher, &error));
    }
    OK(tranship_publisher_alloc(publisher, 5, TRANSHIP_FOREVER, &buf, &error));
    memcpy(tranship_data(&buf), "frame", 5);
    buf.word = 60;
    OK(tranship_publisher_send(publisher, &buf, &error));
    CHECK(buf.kind == TRANSHIP_BUF_NONE);
    OK(tranship_publisher_send_bytes(publisher, "few", 3, 61, &error));
    CHECK(tranship_publisher_send_bytes(publisher, "none", 4, 62, &error) == TRANSHIP_OK);
    CHECK(tranship_publisher_dropped(publisher) == 1);
    OK(tranship_subscriber_recv(subscriber, TRANSHIP_FOREVER, &got, &error));
    CHECK(got.kind == TRANSHIP_BUF_SHARED && got.word == 60 && got.len == 5 && memcmp(tranship_data(&got), "frame", 5) == 0);
    tranship_release(&got);
    OK(tranship_subscriber_recv(subscriber, TRANSHIP_MS(60000), &got, &error));
    CHECK(got.kind == TRANSHIP_BUF_INLINE && got.word == 61 && got.len == 3);
    tranship_release(&got);
    CHECK(tranship_subscriber_missed(subscriber) == 0);
    CHECK(tranship_publisher_send_bytes(publisher, got.words, TRANSHIP_INLINE_BYTES + 1, 0, &error) == TRANSHIP_ERR_TOO_LARGE);
    CHECK(tranship_publisher_send(publisher, &got, &error) == TRANSHIP_ERR_BAD_ARGUMENT);
    tranship_publisher_close(publisher);
    CHECK(tranship_subscriber_recv(subscriber, TRANSHIP_FOREVER, &got, &error) == TRANSHIP_ERR_PEER_GONE);
    tranship_subscriber_close(subscriber);
    CHECK(tranship_publisher_tend(NULL, &error) == TRANSHIP_ERR_BAD_ARGUMENT);
}

/* Lets a subscriber join, and the publisher take it in. */
static void joins(tranship_publisher *publisher, tranship_subscriber *subscriber)
{
    tranship_buf none;

    while (tranship_publisher_subscribers(publisher) == 0) {
        CHECK(tranship_subscriber_recv(subscriber, TRANSHIP_NOW, &none, &error) == TRANSHIP_ERR_TIMED_OUT);
        OK(tranship_publisher_tend(publisher, &error));
    }
}

static void topics_of_pieces_and_of_types(void)
{
    tranship_publisher *publisher, *second;
    tranship_subscriber *subscriber;
    tranship_topic_options options = {.size = sizeof options, .flags = TRANSHIP_TOPIC_SHARED, .pieces = 2, .message_type = "Frame: 4 bytes\nwidth: u32 at 0\n"};
    tranship_subscriber_options typed = {.size = sizeof typed, .message_type = "Frame: 4 bytes\nheight: u32 at 0\n"};
    tranship_buf piece, all, got;

    OK(tranship_publish(here, "parts", &options, &publisher, &error));
    CHECK(tranship_publish(there, "parts", NULL, &second, &error) == TRANSHIP_ERR_NAME_TAKEN);
    OK(tranship_publish(there, "parts", &options, &second, &error));
    tranship_publisher_close(second);
    OK(tranship_subscribe(there, "parts", &typed, &subscriber, &error));
    CHECK(tranship_subscriber_recv(subscriber, TRANSHIP_FOREVER, &got, &error) == TRANSHIP_ERR_CHANNEL_BIND);
    CHECK(strstr(tranship_error_message(error), "`height: u32 at 0` here, `width: u32 at 0` there") != NULL);
    tranship_subscriber_close(subscriber);
    typed.message_type = options.message_type;
    OK(tranship_subscribe(there, "parts", &typed, &subscriber, &error));
    joins(publisher, subscriber);
    OK(tranship_aggregate(NULL, &all, &error));
    for (int number = 0; number < 3; number++) {
        OK(tranship_publisher_alloc(publisher, 4, TRANSHIP_FOREVER, &piece, &error));
        memset(tranship_data(&piece), 'a' + number, 4);
        OK(tranship_aggregate_push_back(&all, &piece, &error));
        if (number == 1) {
            all.word = 9;
            OK(tranship_publisher_send(publisher, &all, &error));
            CHECK(all.kind == TRANSHIP_BUF_NONE);
            OK(tranship_aggregate(NULL, &all, &error));
            for (int more = 0; more < 2; more++) {
                OK(tranship_publisher_alloc(publisher, 1, TRANSHIP_FOREVER, &piece, &error));
                OK(tranship_aggregate_push_back(&all, &piece, &error));
            }
        }
    }
    CHECK(tranship_publisher_send(publisher, &all, &error) == TRANSHIP_ERR_TOO_LARGE);
    CHECK(all.kind == TRANSHIP_BUF_AGGREGATE && tranship_aggregate_count(&all) == 3);
    tranship_release(&all);
    OK(tranship_subscriber_recv(subscriber, TRANSHIP_FOREVER, &got, &error));
    CHECK(got.kind == TRANSHIP_BUF_AGGREGATE && got.word == 9 && tranship_aggregate_count(&got) == 2);
    CHECK(tranship_copy_out(&got, 0, &options, 8, &error) == TRANSHIP_OK && memcmp(&options, "aaaabbbb", 8) == 0);
    tranship_release(&got);
    tranship_publisher_close(publisher);
    tranship_subscriber_close(subscriber);
}

static void *works(void *given)
{
    tranship_service *service = given;
    tranship_error *problem = NULL;

    for (;;) {
        tranship_request *request;
        tranship_buf asked, answer;

        CHECK(tranship_service_recv(service, TRANSHIP_FOREVER, &request, &problem) == TRANSHIP_OK);
        CHECK(tranship_request_take(request, &asked, &problem) == TRANSHIP_OK);
        switch (tranship_request_method(request)) {
        case 0:
            CHECK(tranship_request_alloc(request, asked.len, &answer, &problem) == TRANSHIP_OK);
            memcpy(tranship_data(&answer), tranship_data(&asked), asked.len);
            CHECK(tranship_request_reply(request, &answer, &problem) == TRANSHIP_OK);
            break;
        case 1: /* what came goes to nobody else, its client included */
            CHECK(tranship_request_alloc(request, asked.len, &answer, &problem) == TRANSHIP_OK);
            CHECK(tranship_request_fail(request, &answer, &problem) == TRANSHIP_OK);
            break;
        case 2:
            tranship_request_close(request);
            break;
        default:
            tranship_request_close(request);
            tranship_release(&asked);
            tranship_error_free(problem);
            return NULL;
        }
        tranship_release(&asked);
    }
}

static void services(void)
{
    tranship_service *service;
    tranship_client *client;
    tranship_call *call;
    tranship_buf buf, answer;
    pthread_t worker;
    tranship_service_options typed = {.size = sizeof typed, .request_type = "a\n"};

    CHECK(tranship_serve(here, "echo", &typed, &service, &error) == TRANSHIP_ERR_BAD_ARGUMENT);
    OK(tranship_serve(here, "echo", NULL, &service, &error));
    CHECK(pthread_create(&worker, NULL, works, service) == 0);
    typed.answer_type = "b\n";
    CHECK(tranship_open_client(there, "echo", &typed, TRANSHIP_FOREVER, &client, &error) == TRANSHIP_ERR_CHANNEL_BIND);
    OK(tranship_open_client(there, "echo", NULL, TRANSHIP_FOREVER, &client, &error));
    for (uint32_t method = 0; method < 3; method++) {
        tranship_status status;
        OK(tranship_client_alloc(client, 4000, &buf, &error));
        memset(tranship_data(&buf), 'x', buf.len);
        status = tranship_client_call(client, method, &buf, TRANSHIP_MS(3600000), &answer, &error);
        CHECK(buf.kind == TRANSHIP_BUF_NONE);
        CHECK(status == (method == 0 ? TRANSHIP_OK : method == 1 ? TRANSHIP_ERR_REFUSED : TRANSHIP_ERR_PEER_DIED));
        CHECK(method == 2 ? answer.kind == TRANSHIP_BUF_NONE : answer.len == 4000);
        tranship_release(&answer);
    }
    OK(tranship_client_alloc(client, 1, &buf, &error));
    CHECK(tranship_client_call(client, 128, &buf, TRANSHIP_FOREVER, &answer, &error) == TRANSHIP_ERR_BAD_ARGUMENT);
    CHECK(buf.kind == TRANSHIP_BUF_EXCLUSIVE);
    OK(tranship_client_begin(client, 0, &buf, TRANSHIP_FOREVER, &call, &error));
    OK(tranship_call_wait(call, TRANSHIP_MS(3600000), &answer, &error));
    CHECK(answer.len == 1);
    tranship_release(&answer);
    CHECK(tranship_call_wait(call, TRANSHIP_NOW, &answer, &error) == TRANSHIP_ERR_BAD_ARGUMENT);
    tranship_call_close(call);
    OK(tranship_client_alloc(client, 1, &buf, &error));
    CHECK(tranship_client_call(client, 3, &buf, TRANSHIP_FOREVER, &answer, &error) == TRANSHIP_ERR_PEER_DIED);
    CHECK(pthread_join(worker, NULL) == 0);
    OK(tranship_client_alloc(client, 1, &buf, &error));
    OK(tranship_client_begin(client, 0, &buf, TRANSHIP_FOREVER, &call, &error)); /* nobody takes it */
    CHECK(tranship_call_wait(call, TRANSHIP_MS(1), &answer, &error) == TRANSHIP_ERR_TIMED_OUT);
    tranship_service_close(service);
    CHECK(tranship_call_wait(call, TRANSHIP_FOREVER, &answer, &error) != TRANSHIP_OK);
    tranship_call_close(call);
    tranship_client_close(client);
    CHECK(tranship_open_client(there, "nobody", NULL, TRANSHIP_MS(1), &client, &error) == TRANSHIP_ERR_TIMED_OUT);
}

/* Answers one call: gives its items back, and then their number. */
static void *streams_back(void *given)
{
    tranship_service *service = given;
    tranship_error *problem = NULL;
    tranship_request *request;
    tranship_buf item, answer;
    uint64_t items = 0;

    CHECK(tranship_service_recv(service, TRANSHIP_FOREVER, &request, &problem) == TRANSHIP_OK);
    for (;; items++) {
        CHECK(tranship_request_recv(request, TRANSHIP_FOREVER, &item, &problem) == TRANSHIP_OK);
        if (item.kind == TRANSHIP_BUF_NONE)
            break;
        CHECK(tranship_request_alloc(request, item.len, &answer, &problem) == TRANSHIP_OK);
        CHECK(tranship_copy_out(&item, 0, tranship_data(&answer), item.len, &problem) == TRANSHIP_OK);
        tranship_release(&item);
        CHECK(tranship_request_send(request, &answer, TRANSHIP_FOREVER, &problem) == TRANSHIP_OK);
        CHECK(answer.kind == TRANSHIP_BUF_NONE);
    }
    CHECK(tranship_request_alloc(request, sizeof items, &answer, &problem) == TRANSHIP_OK);
    memcpy(tranship_data(&answer), &items, sizeof items);
    CHECK(tranship_request_reply(request, &answer, &problem) == TRANSHIP_OK);
    tranship_error_free(problem);
    return NULL;
}

static void services_with_streams(void)
{
    tranship_service *service, *second;
    tranship_client *client;
    tranship_call *call;
    tranship_buf buf, got;
    uint64_t items;
    pthread_t worker;
    tranship_service_options shared = {.size = sizeof shared, .flags = TRANSHIP_SERVICE_SHARED};

    OK(tranship_serve(here, "shared", &shared, &service, &error));
    CHECK(tranship_serve(there, "shared", NULL, &second, &error) == TRANSHIP_ERR_NAME_TAKEN);
    OK(tranship_serve(there, "shared", &shared, &second, &error));
    tranship_service_close(second);
    tranship_service_close(service);

    OK(tranship_serve(here, "items", NULL, &service, &error));
    CHECK(pthread_create(&worker, NULL, streams_back, service) == 0);
    OK(tranship_open_client(there, "items", NULL, TRANSHIP_FOREVER, &client, &error));
    CHECK(tranship_client_workers(client) == 1 && tranship_client_workers(NULL) == 0);
    OK(tranship_client_alloc(client, 1, &buf, &error));
    OK(tranship_client_begin_streams(client, 0, &buf, TRANSHIP_FOREVER, &call, &error));
    CHECK(tranship_call_recv(call, TRANSHIP_MS(1), &got, &error) == TRANSHIP_ERR_TIMED_OUT && got.kind == TRANSHIP_BUF_NONE);
    for (int number = 0; number < 20; number++) {
        OK(tranship_client_alloc(client, 3000, &buf, &error));
        memset(tranship_data(&buf), number, buf.len);
        OK(tranship_call_send(call, &buf, &error));
        CHECK(buf.kind == TRANSHIP_BUF_NONE);
        OK(tranship_call_recv(call, TRANSHIP_FOREVER, &got, &error));
        CHECK(got.len == 3000 && *(const unsigned char *)tranship_data(&got) == number);
        tranship_release(&got);
    }
    tranship_call_finish(call);
    OK(tranship_call_recv(call, TRANSHIP_FOREVER, &got, &error));
    CHECK(got.kind == TRANSHIP_BUF_NONE);
    OK(tranship_call_wait(call, TRANSHIP_FOREVER, &got, &error));
    OK(tranship_copy_out(&got, 0, &items, sizeof items, &error));
    CHECK(items == 20);
    tranship_release(&got);
    CHECK(tranship_call_recv(call, TRANSHIP_NOW, &got, &error) == TRANSHIP_ERR_BAD_ARGUMENT);
    tranship_call_close(call);
    CHECK(pthread_join(worker, NULL) == 0);
    OK(tranship_client_alloc(client, 1, &buf, &error));
    OK(tranship_client_begin(client, 0, &buf, TRANSHIP_FOREVER, &call, &error));
    OK(tranship_client_alloc(client, 1, &buf, &error));
    CHECK(tranship_call_send(call, &buf, &error) == TRANSHIP_ERR_BAD_ARGUMENT && buf.kind == TRANSHIP_BUF_EXCLUSIVE);
    tranship_release(&buf);
    tranship_call_close(call);
    tranship_client_close(client);
    tranship_service_close(service);
    CHECK(tranship_call_send(NULL, &buf, &error) == TRANSHIP_ERR_BAD_ARGUMENT);
    CHECK(tranship_request_recv(NULL, TRANSHIP_NOW, &buf, &error) == TRANSHIP_ERR_BAD_ARGUMENT);
}

static void queues(void)
{
    tranship_producer *producer;
    tranship_consumer *consumer;
    tranship_item *item;
    tranship_buf buf, got;
    uint32_t pid;
    uint64_t seen = 0;
    tranship_queue_options options = {.size = sizeof options, .depth = 4};

    OK(tranship_produce(here, "jobs", &options, &producer, &error));
    OK(tranship_consume(there, "jobs", NULL, &consumer, &error));
    CHECK(tranship_consumer_recv(consumer, TRANSHIP_NOW, &got, &item, &error) == TRANSHIP_ERR_TIMED_OUT);
    CHECK(item == NULL && got.kind == TRANSHIP_BUF_NONE);
    OK(tranship_producer_alloc(producer, 3000, TRANSHIP_FOREVER, &buf, &error));
    buf.word = 1;
    OK(tranship_producer_send(producer, &buf, TRANSHIP_FOREVER, &error));
    OK(tranship_producer_send_bytes(producer, "two", 3, 2, TRANSHIP_NOW, &error));
    OK(tranship_producer_send_bytes(producer, "three", 5, 3, TRANSHIP_NOW, &error));
    while (seen < 3) {
        tranship_status status = tranship_consumer_recv(consumer, TRANSHIP_NOW, &got, &item, &error);
        OK(tranship_producer_tend(producer, &error));
        if (status == TRANSHIP_ERR_TIMED_OUT)
            continue;
        ok(status, "tranship_consumer_recv");
        CHECK(got.word == seen + 1);
        CHECK(got.len == (got.word == 1 ? 3000 : got.word == 2 ? 3 : 5));
        if (got.word == 2 && !tranship_item_redelivered(item)) {
            tranship_release(&got);
            tranship_item_reject(item);
            seen++;
            continue;
        }
        tranship_release(&got);
        OK(tranship_item_ack(item, &error));
        seen++;
    }
    OK(tranship_producer_wait_done(producer, TRANSHIP_FOREVER, &error));
    OK(tranship_producer_take_lost(producer, &got, &pid, &error));
    CHECK(got.word == 2 && got.len == 3);
    tranship_release(&got);
    OK(tranship_producer_take_lost(producer, &got, NULL, &error));
    CHECK(got.kind == TRANSHIP_BUF_NONE);
    tranship_producer_close(producer);
    tranship_consumer_close(consumer);
    CHECK(tranship_item_ack(NULL, &error) == TRANSHIP_ERR_BAD_ARGUMENT);
}

int main(void)
{
    tranship_domain_options options = {.size = sizeof options, .flags = TRANSHIP_DOMAIN_HELPER_THREAD};
    char socket[200];

    OK(tranship_embedded(&options, &here, &error));
    CHECK(tranship_domain_socket(here, socket, sizeof socket) < sizeof socket);
    options.socket = socket;
    OK(tranship_connect(&options, &there, &error));
    topics();
    topics_of_pieces_and_of_types();
    services();
    services_with_streams();
    queues();
    tranship_domain_close(there);
    tranship_domain_close(here);
    tranship_error_free(error);
    printf("all as promised\n");
    return 0;
}
