/* A FastCGI application: `/bytes/N` is answered with N bytes. `answer SOCKET N` makes N processes that serve SOCKET;
   without arguments the program serves the descriptor that it got, as FastCGI wants it. */
#include <fcgiapp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char bytes[1 << 20];

static void serve(int socket)
{
    FCGX_Request request;
    FCGX_InitRequest(&request, socket, 0);
    while (FCGX_Accept_r(&request) == 0) {
        const char *uri = FCGX_GetParam("REQUEST_URI", request.envp);
        const char *slash = uri ? strrchr(uri, '/') : NULL;
        unsigned long n = slash ? strtoul(slash + 1, NULL, 10) : 0;
        if (n > sizeof bytes)
            n = sizeof bytes;
        FCGX_FPrintF(request.out, "Content-Type: application/octet-stream\r\nContent-Length: %lu\r\n\r\n", n);
        FCGX_PutStr(bytes, (int)n, request.out);
    }
}

int main(int argc, char **argv)
{
    FCGX_Init();
    memset(bytes, 'x', sizeof bytes);
    if (argc < 3) {
        serve(0);
        return 0;
    }
    int socket = FCGX_OpenSocket(argv[1], 1024);
    chmod(argv[1], 0777);
    for (int i = atoi(argv[2]); i > 0; i--)
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            serve(socket);
            return 0;
        }
    while (wait(NULL) > 0)
        ;
    return 0;
}
