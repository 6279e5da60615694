/* DPDK's packet and object pools, measured on request: one line in ("pkt 32 50": what, how many distinct, milliseconds), one
 * line out (median and 99th percentile of ticks per sample of 64 pairs, samples, ticks in all). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

#define BATCH 64
#define SAMPLES (1 << 18)

static uint64_t samples[SAMPLES];

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return x < y ? -1 : x > y;
}

static void packets(struct rte_mempool *pool, unsigned distinct)
{
	struct rte_mbuf *held[BATCH];
	for (unsigned done = 0; done < BATCH; done += distinct) {
		for (unsigned i = 0; i < distinct; i++) {
			held[i] = rte_pktmbuf_alloc(pool);
			__asm__ volatile("" : : "r"(held[i]) : "memory");
		}
		for (unsigned i = 0; i < distinct; i++)
			rte_pktmbuf_free(held[i]);
	}
}

static void objects(struct rte_mempool *pool, unsigned distinct)
{
	void *held[BATCH];
	for (unsigned done = 0; done < BATCH; done += distinct) {
		for (unsigned i = 0; i < distinct; i++) {
			if (rte_mempool_get(pool, &held[i]) != 0)
				abort();
			__asm__ volatile("" : : "r"(held[i]) : "memory");
		}
		for (unsigned i = 0; i < distinct; i++)
			rte_mempool_put(pool, held[i]);
	}
}

int main(int argc, char **argv)
{
	char what[16];
	unsigned distinct, ms;

	if (rte_eal_init(argc, argv) < 0) {
		fprintf(stderr, "rte_eal_init: %s\n", rte_strerror(rte_errno));
		return 1;
	}
	struct rte_mempool *pkt = rte_pktmbuf_pool_create("pkt", 8191, 256, 0, 2048 + RTE_PKTMBUF_HEADROOM, SOCKET_ID_ANY);
	struct rte_mempool *obj = rte_mempool_create("obj", 8191, 256, 256, 0, NULL, NULL, NULL, NULL, SOCKET_ID_ANY, 0);
	if (pkt == NULL || obj == NULL) {
		fprintf(stderr, "pools: %s\n", rte_strerror(rte_errno));
		return 1;
	}
	printf("ready\n");
	fflush(stdout);
	while (scanf("%15s %u %u", what, &distinct, &ms) == 3) {
		uint64_t budget = rte_get_tsc_hz() / 1000 * ms, begun = rte_rdtsc(), all = 0;
		unsigned used = 0;
		for (;;) {
			uint64_t before = rte_rdtsc();
			if (strcmp(what, "pkt") == 0)
				packets(pkt, distinct);
			else
				objects(obj, distinct);
			uint64_t now = rte_rdtsc();
			if (now - begun < budget / 4)
				continue;
			samples[used++] = now - before;
			all += now - before;
			if (used == SAMPLES || now - begun > budget * 5 / 4)
				break;
		}
		qsort(samples, used, sizeof(samples[0]), by_value);
		printf("%llu %llu %u %llu\n", (unsigned long long)samples[used / 2],
		       (unsigned long long)samples[(uint64_t)(used - 1) * 990 / 1000], used, (unsigned long long)all);
		fflush(stdout);
	}
	return 0;
}
