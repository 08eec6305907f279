/*
 * A client that owes nothing to the C library's resolver or to proxy variables, as programs with a resolver of their own
 * are: asks 8.8.8.8 for a name, connects to what that says, and prints what it is told.
 *
 *     own_resolver NAME PORT PATH
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    unsigned char query[512] = {0x12, 0x34, 1, 0, 0, 1};
    size_t length = 12;
    for (const char *label = argv[1]; *label;) {
        size_t size = strcspn(label, ".");
        if (size > 63 || length + size > 400)
            return 2;
        query[length++] = (unsigned char)size;
        memcpy(query + length, label, size);
        length += size;
        label += size + (label[size] == '.');
    }
    memcpy(query + length, "\0\0\1\0\1", 5);
    length += 5;

    struct sockaddr_in server = {.sin_family = AF_INET, .sin_port = htons(53)};
    inet_pton(AF_INET, "8.8.8.8", &server.sin_addr);
    struct timeval patience = {.tv_sec = 4};
    int datagrams = socket(AF_INET, SOCK_DGRAM, 0);
    if (datagrams < 0 || connect(datagrams, (struct sockaddr *)&server, sizeof server))
        fail("cannot ask");
    setsockopt(datagrams, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (send(datagrams, query, length, 0) != (ssize_t)length)
        fail("cannot send");
    unsigned char reply[512];
    ssize_t got = recv(datagrams, reply, sizeof reply, 0);
    if (got < 16)
        fail("no answer");
    if ((reply[3] & 15) || !(reply[6] | reply[7])) {
        fprintf(stderr, "%s: code %d and no address\n", argv[1], reply[3] & 15);
        return 1;
    }
    /* The last record of an answer to a question for an address is one. */
    struct sockaddr_in target = {.sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(argv[2]))};
    memcpy(&target.sin_addr, reply + got - 4, 4);
    int stream = socket(AF_INET, SOCK_STREAM, 0);
    if (stream < 0 || connect(stream, (struct sockaddr *)&target, sizeof target))
        fail("cannot connect");
    setsockopt(stream, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    char text[1024];
    int size = snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", argv[3], argv[1]);
    if (write(stream, text, (size_t)size) != size)
        fail("cannot write");
    while ((got = read(stream, text, sizeof text)) > 0)
        fwrite(text, 1, (size_t)got, stdout);
    return got < 0;
}
