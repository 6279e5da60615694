/* A queue: `queue produce NAME N` puts N jobs into it and waits until all are done; `queue consume NAME N` takes N of them. Any number of either may run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tranship/queue.h>

static tranship_status produce(tranship_domain *domain, const char *name, int count, tranship_error **error)
{
    tranship_producer *jobs = NULL;
    tranship_status status = tranship_produce(domain, name, NULL, &jobs, error);

    for (int number = 0; number < count && status == TRANSHIP_OK; number++) {
        tranship_buf job;
        status = tranship_producer_alloc(jobs, 1000, TRANSHIP_FOREVER, &job, error);
        if (status != TRANSHIP_OK)
            break;
        memset(tranship_data(&job), number, job.len);
        job.word = (uint64_t)number;
        status = tranship_producer_send(jobs, &job, TRANSHIP_FOREVER, error);
        tranship_release(&job);
    }
    if (status == TRANSHIP_OK)
        status = tranship_producer_wait_done(jobs, TRANSHIP_FOREVER, error); /* taken, and acknowledged */
    tranship_producer_close(jobs);
    return status;
}

static tranship_status consume(tranship_domain *domain, const char *name, int count, tranship_error **error)
{
    tranship_consumer *jobs = NULL;
    tranship_status status = tranship_consume(domain, name, NULL, &jobs, error);

    while (status == TRANSHIP_OK && count-- > 0) {
        tranship_buf job;
        tranship_item *item = NULL;
        status = tranship_consumer_recv(jobs, TRANSHIP_FOREVER, &job, &item, error);
        if (status != TRANSHIP_OK)
            break;
        printf("job %llu of %zu bytes\n", (unsigned long long)job.word, job.len);
        tranship_release(&job);
        status = tranship_item_ack(item, error); /* until here another consumer gets it if this process dies */
    }
    tranship_consumer_close(jobs);
    return status;
}

int main(int argc, char **argv)
{
    tranship_error *error = NULL;
    tranship_domain *domain = NULL;
    tranship_status status = tranship_connect(NULL, &domain, &error);

    if (status == TRANSHIP_OK && argc == 4 && strcmp(argv[1], "produce") == 0)
        status = produce(domain, argv[2], atoi(argv[3]), &error);
    else if (status == TRANSHIP_OK && argc == 4)
        status = consume(domain, argv[2], atoi(argv[3]), &error);
    if (status != TRANSHIP_OK)
        fprintf(stderr, "queue: %s\n", tranship_error_message(error));
    tranship_error_free(error);
    tranship_domain_close(domain);
    return status != TRANSHIP_OK;
}
