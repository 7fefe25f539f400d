/* What loadgen.c measures with: a clock, a histogram of latencies, the CPU time of processes. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static uint64_t wall_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME_COARSE, &t);
    return t.tv_sec * 1000ull + t.tv_nsec / 1000000;
}

#define BUCKETS 64 /* for each power of two of nanoseconds */
static uint64_t histogram[64 * BUCKETS];

static void note_latency(uint64_t ns) {
    if (ns < BUCKETS) {
        histogram[ns]++;
        return;
    }
    int exponent = 63 - __builtin_clzll(ns) - 6;
    histogram[(exponent + 1) * BUCKETS + ((ns >> exponent) - BUCKETS)]++;
}

/* The latency that the fraction `quantile` of all `count` notes does not exceed. */
static double latency_us(double quantile, uint64_t count) {
    uint64_t target = quantile * count, seen = 0;
    for (int i = 0; i < 64 * BUCKETS; i++) {
        seen += histogram[i];
        if (seen <= target) continue;
        if (i < BUCKETS) return i / 1e3;
        return (double)(i % BUCKETS + BUCKETS) * (1ull << (i / BUCKETS - 1)) / 1e3;
    }
    return 0;
}

/* The user and system time of other processes, all threads, in steps of the kernel's tick. */
static double cpu_s(const int *pids, int count) {
    unsigned long ticks = 0;
    for (int i = 0; i < count; i++) {
        char path[64], text[2048];
        unsigned long user, system;
        snprintf(path, sizeof path, "/proc/%d/stat", pids[i]);
        FILE *file = fopen(path, "r");
        if (!file) continue;
        text[fread(text, 1, sizeof text - 1, file)] = 0;
        fclose(file);
        char *after_name = strrchr(text, ')');
        if (after_name && sscanf(after_name + 2,
                                 "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
                                 &system) == 2)
            ticks += user + system;
    }
    return ticks / (double)sysconf(_SC_CLK_TCK);
}

static double own_cpu_s(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec +
           (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}
