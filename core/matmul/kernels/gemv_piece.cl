// 16 bytes of a matrix at a time, as f32: what the wide gemv kernels share. Needs IN_F32, IN_F16 or IN_BF16.
// STREAMED: what is read of the matrix takes no room in the first-level cache, where the vector is (NVIDIA).

#if defined(IN_F32)
typedef float elem_t;
#define PIECE 4
static inline void widen(uint4 v, float *x)
{
    x[0] = as_float(v.x); x[1] = as_float(v.y); x[2] = as_float(v.z); x[3] = as_float(v.w);
}
static inline float one(__global const elem_t *p) { return *p; }
static inline void store(__global elem_t *p, float x) { *p = x; }
#elif defined(IN_F16)
typedef half elem_t;
#define PIECE 8
static inline float2 both(uint bits)
{
    ushort2 parts = (ushort2)((ushort)bits, (ushort)(bits >> 16));
    return vload_half2(0, (const half *)&parts);
}
static inline float one(__global const elem_t *p) { return vload_half(0, p); }
static inline void store(__global elem_t *p, float x) { vstore_half_rte(x, 0, p); }
#else
typedef ushort elem_t;
#define PIECE 8
static inline float2 both(uint bits) { return (float2)(as_float(bits << 16), as_float(bits & 0xffff0000u)); }
static inline float one(__global const elem_t *p) { return as_float((uint)*p << 16); }
static inline void store(__global elem_t *p, float x)
{
    uint bits = as_uint(x);
    *p = isnan(x) ? (ushort)(bits >> 16 | 0x40) : (ushort)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}
#endif
#if PIECE == 8
static inline void widen(uint4 v, float *x)
{
    float2 a = both(v.x), b = both(v.y), c = both(v.z), d = both(v.w);
    x[0] = a.x; x[1] = a.y; x[2] = b.x; x[3] = b.y; x[4] = c.x; x[5] = c.y; x[6] = d.x; x[7] = d.y;
}
#endif

#if STREAMED
static inline uint4 piece_at(__global const elem_t *p)
{
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
    return v;
}
#else
static inline uint4 piece_at(__global const elem_t *p) { return *(__global const uint4 *)p; }
#endif

// Has mat, vec and out begin at this group's product. 64-bit divisions would take a short group longer than its sums.
#define FIND_PRODUCT                                                                          \
    mat += mat_at;                                                                              \
    vec += vec_at;                                                                              \
    out += out_at;                                                                              \
    if (get_num_groups(1) > 1) {                                                                \
        uint product = get_group_id(1), outer = product / (uint)inner_extent;                   \
        uint inner = product - outer * (uint)inner_extent;                                      \
        mat += outer * mat_outer + inner * mat_inner;                                           \
        vec += outer * vec_outer + inner * vec_inner;                                           \
        out += outer * out_outer + inner * out_inner;                                           \
    }
