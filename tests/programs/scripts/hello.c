/* A thread and a library function. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>

static void *add(void *number)
{
    *(int *)number += 1;
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    int number = 41;
    (void)argv;
    if (pthread_create(&thread, NULL, add, &number) || pthread_join(thread, NULL)) return 1;
    printf("%d %.0f\n", number, sqrt(argc));
    return 0;
}
