/* CRC-32 as zlib has it: by carry-less multiplication where the processor has it, else by tables, 16 bytes a step.
 *
 * The folding and its constants are those of Gopal et al., "Fast CRC Computation for Generic Polynomials Using
 * PCLMULQDQ Instruction" (Intel, 2009), for the reflected polynomial 0xEDB88320.
 */
#ifndef ORBITMQ_CRC_H
#define ORBITMQ_CRC_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static uint32_t orbitmq_crc_table[16][256];

static void orbitmq_crc_make_tables(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t value = i;
        for (int bit = 0; bit < 8; bit++)
            value = (value >> 1) ^ (value & 1 ? 0xEDB88320u : 0);
        orbitmq_crc_table[0][i] = value;
    }
    for (int table = 1; table < 16; table++)
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t before = orbitmq_crc_table[table - 1][i];
            orbitmq_crc_table[table][i] = (before >> 8) ^ orbitmq_crc_table[0][before & 0xFF];
        }
}

/* `crc` is inverted, here and below. */
static uint32_t orbitmq_crc_by_table(const unsigned char *data, size_t size, uint32_t crc)
{
    while (size >= 16) {
        uint32_t next = 0;
        for (int i = 0; i < 4; i++)
            next ^= orbitmq_crc_table[15 - i][data[i] ^ ((crc >> (8 * i)) & 0xFF)];
        for (int i = 4; i < 16; i++)
            next ^= orbitmq_crc_table[15 - i][data[i]];
        crc = next;
        data += 16;
        size -= 16;
    }
    while (size--)
        crc = (crc >> 8) ^ orbitmq_crc_table[0][(crc ^ *data++) & 0xFF];
    return crc;
}

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <immintrin.h>
#define ORBITMQ_CRC_FOLDS 1

/* At least 64 bytes, in whole blocks of 16. */
__attribute__((target("pclmul,sse4.1")))
static uint32_t orbitmq_crc_by_folding(const unsigned char *data, size_t size, uint32_t crc)
{
    const __m128i k1k2 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
    const __m128i k3k4 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
    const __m128i k5 = _mm_set_epi64x(0, 0x0163cd6124);
    const __m128i polynomial = _mm_set_epi64x(0x01f7011641, 0x01db710641);
    const __m128i low_words = _mm_setr_epi32(~0, 0, ~0, 0);
    const __m128i *blocks = (const __m128i *)data;
    __m128i lanes[4];

    for (int i = 0; i < 4; i++)
        lanes[i] = _mm_loadu_si128(blocks + i);
    lanes[0] = _mm_xor_si128(lanes[0], _mm_cvtsi32_si128((int)crc));
    blocks += 4;
    size -= 64;
    for (; size >= 64; size -= 64, blocks += 4)
        for (int i = 0; i < 4; i++) {
            __m128i low = _mm_clmulepi64_si128(lanes[i], k1k2, 0x00);
            __m128i high = _mm_clmulepi64_si128(lanes[i], k1k2, 0x11);
            lanes[i] = _mm_xor_si128(_mm_xor_si128(low, high), _mm_loadu_si128(blocks + i));
        }
    __m128i sum = lanes[0];
    for (int i = 1; i < 4; i++) {
        __m128i low = _mm_clmulepi64_si128(sum, k3k4, 0x00);
        __m128i high = _mm_clmulepi64_si128(sum, k3k4, 0x11);
        sum = _mm_xor_si128(_mm_xor_si128(low, high), lanes[i]);
    }
    for (; size >= 16; size -= 16, blocks++) {
        __m128i low = _mm_clmulepi64_si128(sum, k3k4, 0x00);
        __m128i high = _mm_clmulepi64_si128(sum, k3k4, 0x11);
        sum = _mm_xor_si128(_mm_xor_si128(low, high), _mm_loadu_si128(blocks));
    }
    /* 128 bits to 64, to 32 (Barrett). */
    sum = _mm_xor_si128(_mm_srli_si128(sum, 8), _mm_clmulepi64_si128(sum, k3k4, 0x10));
    __m128i rest = _mm_srli_si128(sum, 4);
    sum = _mm_xor_si128(_mm_clmulepi64_si128(_mm_and_si128(sum, low_words), k5, 0x00), rest);
    rest = _mm_clmulepi64_si128(_mm_and_si128(sum, low_words), polynomial, 0x10);
    rest = _mm_clmulepi64_si128(_mm_and_si128(rest, low_words), polynomial, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(sum, rest), 1);
}
#else
#define ORBITMQ_CRC_FOLDS 0
#endif

static int orbitmq_crc_folds = 0;

/* Call it once before the first checksum; `may_fold` 0: by tables, whatever the processor can. */
static int orbitmq_crc_prepare(int may_fold)
{
    if (orbitmq_crc_table[0][1] == 0)
        orbitmq_crc_make_tables();
#if ORBITMQ_CRC_FOLDS
    __builtin_cpu_init();
    orbitmq_crc_folds = may_fold && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
#else
    (void)may_fold;
#endif
    return orbitmq_crc_folds;
}

static uint32_t orbitmq_crc32(const unsigned char *data, size_t size)
{
    uint32_t crc = 0xFFFFFFFFu;
#if ORBITMQ_CRC_FOLDS
    if (orbitmq_crc_folds && size >= 64) {
        size_t whole = size & ~(size_t)15;
        crc = orbitmq_crc_by_folding(data, whole, crc);
        data += whole;
        size -= whole;
    }
#endif
    return orbitmq_crc_by_table(data, size, crc) ^ 0xFFFFFFFFu;
}

#endif
