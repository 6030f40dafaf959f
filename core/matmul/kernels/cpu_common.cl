/* What the kernels made for CPUs share: access to vectors, and blocks taken in turns from a counter. */
/* Vectors of the accumulator's type are loaded and stored as such, whatever their alignment:
 * PoCL makes each vload16 of sixteen loads, and takes a third of its time to make one of them again. */
#if ON_CPU && defined(__clang__)
typedef acc_v acc_any __attribute__((aligned(sizeof(acc_t))));
#define ACCESS(space)                                                                                      \
    __attribute__((overloadable)) inline acc_v load_any(space const acc_t *p) { return *(space const acc_any *)p; } \
    __attribute__((overloadable)) inline void store_any(acc_v v, space acc_t *p) { *(space acc_any *)p = v; }
ACCESS(__global)
ACCESS(__local)
ACCESS(__private)
#undef LOAD_ACCV
#undef STORE_ACCV
#define LOAD_ACCV(p, i) load_any((p) + (i))
#define STORE_ACCV(v, p, i) store_any(v, (p) + (i))
#if IN == F32 || IN == F64
#undef LOADV
#define LOADV(p, i) LOAD_ACCV(p, i)
#endif
#endif

/* Intel's compiler takes two seconds for OpenCL's own atomic functions, and a quarter of one for clang's. */
#if ON_CPU && defined(__clang__)
#define DRAW(number) __atomic_fetch_add(number, 1, __ATOMIC_RELAXED)
#define SET_BACK(number) __atomic_store_n(number, 0, __ATOMIC_RELAXED)
#else
#define DRAW(number) atomic_inc(number)
#define SET_BACK(number) atomic_xchg(number, 0)
#endif

/* Blocks taken in turns: cut in equal stretches with a counter each, LINE_INTS apart, which begin at 0. A
 * work-item takes the blocks of its own stretch in order, then what is left of the others'. `ended` counts the
 * stretches whose end it has met, and begins at 0. Returns -1 when no block is left. Every work-item draws one
 * number too high of each counter; the highest is the last to be drawn, and sets it back for the next launch. */
#define LINE_INTS 16 /* counters share no line of the cache */
inline int next_block(volatile __global int *turns, int blocks, int stretches, int *ended)
{
    for (; *ended < stretches; ++*ended) {
        int whose = ((int)get_group_id(0) + *ended) % stretches;
        int begin = (long)blocks * whose / stretches, end = (long)blocks * (whose + 1) / stretches;
        int block = begin + DRAW(turns + whose * LINE_INTS);
        if (block < end)
            return block;
        if (block == end + (int)get_num_groups(0) - 1)
            SET_BACK(turns + whose * LINE_INTS);
    }
    return -1;
}
#define FOR_MY_BLOCKS(block, turns, blocks, stretches)                                                       \
    for (int ended_ = 0, block = next_block(turns, blocks, stretches, &ended_); block >= 0;                  \
         block = next_block(turns, blocks, stretches, &ended_))
