/* Reads a channel to its end, and says how many messages came and what their bytes add up to. */
#include <inttypes.h>
#include <stdio.h>
#include <tranship.h>

int main(int argc, char **argv)
{
    tranship_error *error = NULL;
    tranship_domain *domain = NULL;
    tranship_receiver *receiver = NULL;
    tranship_status status;
    uint64_t messages = 0, sum = 0;

    if (argc != 2)
        return 2;
    if ((status = tranship_connect(NULL, &domain, &error)) == TRANSHIP_OK)
        status = tranship_open_receiver(domain, argv[1], NULL, TRANSHIP_FOREVER, &receiver, &error);
    while (status == TRANSHIP_OK) {
        tranship_buf message;
        status = tranship_recv(receiver, TRANSHIP_FOREVER, &message, &error);
        if (status != TRANSHIP_OK)
            break;
        const unsigned char *bytes = tranship_data(&message);
        for (size_t i = 0; i < message.len; i++)
            sum += bytes[i];
        messages++;
        tranship_release(&message);
    }
    if (status == TRANSHIP_ERR_PEER_GONE)
        printf("%" PRIu64 " %" PRIu64 "\n", messages, sum);
    else
        fprintf(stderr, "%s\n", tranship_error_message(error));
    tranship_error_free(error);
    tranship_receiver_close(receiver);
    tranship_domain_close(domain);
    return status != TRANSHIP_ERR_PEER_GONE;
}
