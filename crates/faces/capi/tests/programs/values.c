/* A value that is sent, and changed afterwards: what arrives is what it was. */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <tranship/zc.h>
#include <unistd.h>

enum { SIZE = 64 << 10 };

int main(void)
{
    static char arrived[SIZE];
    int pair[2], buffer = 4 * SIZE;
    char *value = zc_malloc(SIZE);

    if (!value || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
        return 1;
    setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
    memset(value, 1, SIZE);
    ssize_t sent = send(pair[0], value, SIZE, 0);
    if (sent <= 0)
        return 2;
    memset(value, 2, SIZE);
    for (ssize_t got = 0, n; got < sent; got += n) {
        n = read(pair[1], arrived, sizeof arrived);
        if (n <= 0)
            return 3;
        for (ssize_t i = 0; i < n; i++)
            if (arrived[i] != 1)
                return 4;
    }
    zc_free(value);
    zc_free(NULL);
    puts("what was sent arrived");
    return 0;
}
