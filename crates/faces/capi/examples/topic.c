/* A topic: `topic publish NAME N [VIEWERS]` publishes N frames to whatever number of subscribers, once VIEWERS (1) are there; `topic view NAME` prints
 * what comes until the publisher ends the topic. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tranship/topic.h>

#define FRAME 4096

static tranship_status publish(tranship_domain *domain, const char *name, int count, size_t viewers, tranship_error **error)
{
    tranship_publisher *camera = NULL;
    tranship_topic_options options = {.size = sizeof options, .history = 16};
    tranship_status status = tranship_publish(domain, name, &options, &camera, error);

    if (status == TRANSHIP_OK)
        status = tranship_publisher_wait_for(camera, viewers, TRANSHIP_FOREVER, error);
    for (int number = 0; number < count && status == TRANSHIP_OK; number++) {
        tranship_buf frame;
        status = tranship_publisher_alloc(camera, FRAME, TRANSHIP_FOREVER, &frame, error);
        if (status != TRANSHIP_OK)
            break;
        memset(tranship_data(&frame), number, FRAME);
        frame.word = (uint64_t)number;
        status = tranship_publisher_send(camera, &frame, error); /* one line, however many subscribers */
        tranship_release(&frame);
    }
    tranship_publisher_close(camera); /* subscribers take what the ring still has */
    return status;
}

static tranship_status view(tranship_domain *domain, const char *name, tranship_error **error)
{
    tranship_subscriber *video = NULL;
    tranship_status status = tranship_subscribe(domain, name, NULL, &video, error);

    while (status == TRANSHIP_OK) {
        tranship_buf frame;
        status = tranship_subscriber_recv(video, TRANSHIP_FOREVER, &frame, error);
        if (status == TRANSHIP_OK)
            printf("frame %llu of %zu bytes: %d\n", (unsigned long long)frame.word, frame.len,
                   *(const unsigned char *)tranship_data(&frame)); /* the publisher's own pages, read-only here */
        tranship_release(&frame);
    }
    printf("missed %llu\n", (unsigned long long)tranship_subscriber_missed(video));
    tranship_subscriber_close(video);
    return status == TRANSHIP_ERR_PEER_GONE ? TRANSHIP_OK : status; /* the end in order */
}

int main(int argc, char **argv)
{
    tranship_error *error = NULL;
    tranship_domain *domain = NULL;
    tranship_status status = tranship_connect(NULL, &domain, &error);

    if (status == TRANSHIP_OK && argc >= 4 && strcmp(argv[1], "publish") == 0)
        status = publish(domain, argv[2], atoi(argv[3]), argc > 4 ? (size_t)atoi(argv[4]) : 1, &error);
    else if (status == TRANSHIP_OK && argc == 3)
        status = view(domain, argv[2], &error);
    if (status != TRANSHIP_OK)
        fprintf(stderr, "topic: %s\n", tranship_error_message(error));
    tranship_error_free(error);
    tranship_domain_close(domain);
    return status != TRANSHIP_OK;
}
