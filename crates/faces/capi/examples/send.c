/* The shortest program that sends: waits for somebody who opens "video", and sends a frame. */
#include <stdio.h>
#include <string.h>
#include <tranship.h>

static int failed(tranship_error *error)
{
    fprintf(stderr, "send: %s\n", tranship_error_message(error));
    tranship_error_free(error);
    return 1;
}

int main(void)
{
    tranship_error *error = NULL;
    tranship_domain *domain = NULL;
    tranship_listener *listener = NULL;
    tranship_sender *sender = NULL;
    tranship_buf frame;

    if (tranship_connect(NULL, &domain, &error) != TRANSHIP_OK ||
        tranship_listen(domain, "video", TRANSHIP_SENDER, NULL, &listener, &error) != TRANSHIP_OK ||
        tranship_accept_sender(listener, TRANSHIP_FOREVER, &sender, &error) != TRANSHIP_OK ||
        tranship_sender_alloc(sender, 8 << 20, TRANSHIP_FOREVER, &frame, &error) != TRANSHIP_OK)
        return failed(error);
    memcpy(frame.ptr, "hello", 5);                       /* this process's alone, and writable */
    frame.word = 7;                                      /* a word that travels with it */
    if (tranship_send(sender, &frame, TRANSHIP_FOREVER, &error) != TRANSHIP_OK)
        return failed(error);                            /* what was sent can no longer be written */
    tranship_sender_close(sender);
    tranship_listener_close(listener);
    tranship_domain_close(domain);
    return 0;
}
