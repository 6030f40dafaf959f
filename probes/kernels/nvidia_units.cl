/* How many multiply-adds NVIDIA's matrix instructions do in a second, with operands already in place.
 *
 *   warp_products        mma.sync m16n8k16: A_TILES x B_TILES independent products a warp, all from registers.
 *   warp_group_products  wgmma m64n256: two warp groups, each adding to its own 64 x 256 sums. B (and A for
 *                        16-bit types) come from shared memory, in rows of 128 bytes, swizzled, just as in a
 *                        matrix product; nothing is loaded while it runs.
 *
 *        k ->                      256 rows of B, 128 bytes each          descriptor: address, then the
 *   +---------+  64 rows          +---------+                             distance of 8 rows, 1024 bytes;
 *   | A, group 0                  | B       |  one step of k is           bit 62 says: 128-byte swizzle
 *   +---------+                   | shared  |  32 bytes further on
 *   | A, group 1                  +---------+
 *
 * The values are varied and small: the units draw more power on varied values than on zeros, and a card
 * that reaches its power limit slows down, as it does in a real product.
 *
 * ELEM     f16, bf16 or tf32       PRODUCT, PIN   macros over the accumulators (warp_group_products)
 * Instructions that start with //@ are hidden from the front end and uncovered in the program's text.
 */
#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

/* Two 16-bit numbers, or one TF32 number, of either sign and below 1 in size. */
static inline uint varied(uint i)
{
    uint mixed = i * 2654435761u;
    mixed ^= mixed >> 15;
#if IS_TF32
    return (mixed & 0x807fe000u) | 0x3e000000u;
#elif IS_BF16
    return (mixed & 0x807f807fu) | 0x3e003e00u;
#else
    return (mixed & 0x83ff83ffu) | 0x30003000u;
#endif
}

#if WARP_GROUPS
#define STEPS 4
#define A_BYTES (64 * 128)
#define B_BYTES (256 * 128)

__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void warp_group_products(__global float *out, int iterations)
{
    __local uint tiles[(2 * A_BYTES + B_BYTES) / 4] __attribute__((aligned(1024)));
    uint thread = get_local_id(0), group = thread / 128, base = (uint)(ulong)tiles;
    for (uint i = thread; i < (2 * A_BYTES + B_BYTES) / 4; i += 256)
        tiles[i] = varied(i);
    asm volatile("fence.proxy.async;" : : : "memory");
    barrier(CLK_LOCAL_MEM_FENCE);

    ulong rows = 1ul << 62 | 64ul << 32 | 1ul << 16;
    ulong a = rows | (base + group * A_BYTES) >> 4, b = rows | (base + 2 * A_BYTES) >> 4;
    float acc[128];
    #pragma unroll
    for (uint i = 0; i < 128; i++)
        acc[i] = 0.0f;
#if IS_TF32
    uint fragment[STEPS][4];
    #pragma unroll
    for (uint s = 0; s < STEPS; s++) {
        #pragma unroll
        for (uint i = 0; i < 4; i++)
            fragment[s][i] = varied(thread * 16 + s * 4 + i);
    }
#endif
    for (int n = 0; n < iterations; n++) {
        asm volatile("//@wgmma.fence.sync.aligned;" : : : "memory");
        #pragma unroll
        for (uint s = 0; s < STEPS; s++) {
#if IS_TF32
            PRODUCT(acc, fragment[s], b + 2 * s);
#else
            PRODUCT(acc, a + 2 * s, b + 2 * s);
#endif
        }
        asm volatile("//@wgmma.commit_group.sync.aligned;" : : : "memory");
        asm volatile("//@wgmma.wait_group.sync.aligned 1;" : : : "memory");
    }
    asm volatile("//@wgmma.wait_group.sync.aligned 0;" : : : "memory");
    PIN(acc);
    float sum = 0.0f;
    #pragma unroll
    for (uint i = 0; i < 128; i++)
        sum += acc[i];
    out[get_global_id(0)] = sum;
}

#else

__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void warp_products(__global float *out, int iterations)
{
    uint a[A_TILES][4], b[B_TILES][2], thread = get_global_id(0);
    float acc[A_TILES][B_TILES][4];
    #pragma unroll
    for (uint i = 0; i < A_TILES; i++) {
        #pragma unroll
        for (uint r = 0; r < 4; r++)
            a[i][r] = varied(thread * 64 + i * 4 + r);
    }
    #pragma unroll
    for (uint j = 0; j < B_TILES; j++) {
        #pragma unroll
        for (uint r = 0; r < 2; r++)
            b[j][r] = varied(thread * 64 + 32 + j * 2 + r);
    }
    #pragma unroll
    for (uint i = 0; i < A_TILES; i++) {
        #pragma unroll
        for (uint j = 0; j < B_TILES; j++) {
            #pragma unroll
            for (uint r = 0; r < 4; r++)
                acc[i][j][r] = 0.0f;
        }
    }
    for (int n = 0; n < iterations; n++) {
        #pragma unroll
        for (uint i = 0; i < A_TILES; i++) {
            #pragma unroll
            for (uint j = 0; j < B_TILES; j++) {
                float *c = acc[i][j];
                asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." TEXT(ELEM) "." TEXT(ELEM) ".f32 "
                             "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                             : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                             : "r"(a[i][0]), "r"(a[i][1]), "r"(a[i][2]), "r"(a[i][3]), "r"(b[j][0]), "r"(b[j][1]));
            }
        }
    }
    float sum = 0.0f;
    #pragma unroll
    for (uint i = 0; i < A_TILES; i++) {
        #pragma unroll
        for (uint j = 0; j < B_TILES; j++)
            sum += acc[i][j][0] + acc[i][j][1] + acc[i][j][2] + acc[i][j][3];
    }
    out[thread] = sum;
}
#endif
