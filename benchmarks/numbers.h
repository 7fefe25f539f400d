/* Numbers as frames and headers hold them: big-endian, or as decimal digits. */
#include <stdint.h>

static inline uint32_t read_u32(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3];
}

static inline void write_u32(uint8_t *p, uint32_t value) {
    p[0] = value >> 24, p[1] = value >> 16, p[2] = value >> 8, p[3] = value;
}

static inline void write_u16(uint8_t *p, uint32_t value) { p[0] = value >> 8, p[1] = value; }

static inline void write_digits(uint8_t *at, int count, uint64_t number) {
    for (int i = count - 1; i >= 0; i--, number /= 10) at[i] = '0' + number % 10;
}
