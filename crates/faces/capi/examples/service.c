/* A service: `service serve NAME N` answers N requests with the sum of their bytes; `service call NAME TEXT` calls it, and prints the answer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tranship/service.h>

static tranship_status serve(tranship_domain *domain, const char *name, int count, tranship_error **error)
{
    tranship_service *service = NULL;
    tranship_status status = tranship_serve(domain, name, NULL, &service, error);

    while (status == TRANSHIP_OK && count-- > 0) {
        tranship_request *request = NULL;
        tranship_buf asked, answer;
        uint64_t sum = 0;

        status = tranship_service_recv(service, TRANSHIP_FOREVER, &request, error);
        if (status == TRANSHIP_OK)
            status = tranship_request_take(request, &asked, error);
        if (status != TRANSHIP_OK)
            break;
        for (size_t at = 0; at < asked.len; at++)
            sum += ((const unsigned char *)tranship_data(&asked))[at];
        tranship_release(&asked);
        status = tranship_request_alloc(request, sizeof sum, &answer, error);
        if (status == TRANSHIP_OK) {
            memcpy(tranship_data(&answer), &sum, sizeof sum);
            status = tranship_request_reply(request, &answer, error); /* closes the request */
            tranship_release(&answer);
        } else {
            tranship_request_close(request);
        }
    }
    tranship_service_close(service);
    return status;
}

static tranship_status call(tranship_domain *domain, const char *name, const char *text, tranship_error **error)
{
    tranship_client *client = NULL;
    tranship_buf asks, answer;
    uint64_t sum = 0;
    tranship_status status = tranship_open_client(domain, name, NULL, TRANSHIP_MS(10000), &client, error);

    if (status == TRANSHIP_OK)
        status = tranship_client_alloc(client, strlen(text), &asks, error);
    if (status == TRANSHIP_OK) {
        memcpy(tranship_data(&asks), text, asks.len);
        status = tranship_client_call(client, 0, &asks, TRANSHIP_MS(10000), &answer, error);
        if (status == TRANSHIP_OK && answer.len == sizeof sum) {
            memcpy(&sum, tranship_data(&answer), sizeof sum);
            printf("%llu\n", (unsigned long long)sum);
        }
        tranship_release(&asks);
        tranship_release(&answer);
    }
    tranship_client_close(client);
    return status;
}

int main(int argc, char **argv)
{
    tranship_error *error = NULL;
    tranship_domain *domain = NULL;
    tranship_status status = tranship_connect(NULL, &domain, &error);

    if (status == TRANSHIP_OK && argc == 4 && strcmp(argv[1], "serve") == 0)
        status = serve(domain, argv[2], atoi(argv[3]), &error);
    else if (status == TRANSHIP_OK && argc == 4)
        status = call(domain, argv[2], argv[3], &error);
    if (status != TRANSHIP_OK)
        fprintf(stderr, "service: %s\n", tranship_error_message(error));
    tranship_error_free(error);
    tranship_domain_close(domain);
    return status != TRANSHIP_OK;
}
