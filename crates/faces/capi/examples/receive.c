/* The shortest program that receives: opens "video", reads frames where they are until the sender has closed, and says so if that was not the
 * end in order: then what came may not be all. */
#include <stdio.h>
#include <tranship.h>

int main(void)
{
    tranship_error *error = NULL;
    tranship_domain *domain = NULL;
    tranship_receiver *receiver = NULL;
    tranship_buf frame;
    tranship_status status;

    if ((status = tranship_connect(NULL, &domain, &error)) == TRANSHIP_OK)
        status = tranship_open_receiver(domain, "video", NULL, TRANSHIP_FOREVER, &receiver, &error);
    while (status == TRANSHIP_OK) {
        status = tranship_recv(receiver, TRANSHIP_FOREVER, &frame, &error);
        if (status == TRANSHIP_OK)
            printf("%zu bytes, word %llu: %.*s\n", frame.len, (unsigned long long)frame.word,
                   (int)(frame.len < 5 ? frame.len : 5), /* no 0 is at its end */
                   (const char *)tranship_data(&frame)); /* the sender's own pages, read-only here */
        tranship_release(&frame);                        /* its memory can be used again */
    }
    if (status == TRANSHIP_ERR_PEER_DIED)
        fprintf(stderr, "receive: what came may not be all\n");
    if (status != TRANSHIP_ERR_PEER_GONE)                /* the end in order */
        fprintf(stderr, "receive: %s\n", tranship_error_message(error));
    tranship_error_free(error);
    tranship_receiver_close(receiver);
    tranship_domain_close(domain);
    return status != TRANSHIP_ERR_PEER_GONE;
}
