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

/* Every work-item ends with a number too high. Who has drawn the highest is the last to draw. */
#define READY_FOR_NEXT_LAUNCH(block)                                           \
    if (block == args.blocks + (int)get_num_groups(0) - 1)                     \
        SET_BACK(turn);
