/* How many bytes a device can move in a second, again and again over the same working set.
 *
 * The working set is cut in `chunks`, one per work-group; a work-group walks its chunk with
 * neighbouring work-items on neighbouring vectors, UNROLL of them under way at once. In the next
 * pass it takes the chunk `step` further on. With step 0 each group keeps its chunk, and so a core
 * its own caches, as on a CPU; a GPU's first-level caches do not survive a launch, so there the
 * groups change chunks and what they read comes from the cache all of them share.
 *
 *   [chunk 0        |chunk 1        |chunk 2        | ...]      each `length` vectors
 *    0 1 2 3 0 1 2 3 ...   <- work-items of one group
 *
 * Reading keeps nothing: its sums are compared with a value that data as written here never gives.
 *
 * The UNROLL vectors under way lie side by side, or with STREAMS each in its own part of the chunk: a CPU's
 * prefetchers follow several streams, and bring more than they do from one.
 *
 *   0 1 2 3 0 1 2 3 ... | 0 0 0 ... 1 1 1 ... 2 2 2 ... 3 3 3 ...     <- the order of a lone work-item
 *
 * In the kernels named `once` a group's chunk is what its work-items have under way: it moves that and ends.
 * With EVICT_FIRST the cache is told, by NVIDIA's instructions, to give up this data before any other: what is
 * read here is not read again, and what is written leaves for the memory in longer runs. With PAST_L1 what is
 * read takes no room in the first-level cache.
 *
 * VEC    vector type of one access              LOCAL     work-items of a group
 * UNROLL vectors a work-item has under way
 */
#define NEVER 0x9e3779b9u

typedef VEC vec;
typedef __global const vec *source;
typedef __global vec *target;

#if STREAMS
#define APART (length / UNROLL)
#define END APART
#define STEP LOCAL
#define REST (APART * UNROLL + get_local_id(0))
#else
#define APART LOCAL
#define END (length - min(length, (ulong)((UNROLL - 1) * LOCAL)))
#define STEP (UNROLL * LOCAL)
#define REST i
#endif
#define EACH _Pragma("unroll") for (int u = 0; u < UNROLL; u++)

__kernel void read_set(source src, target out, uint chunks, ulong length, uint step, uint passes)
{
    vec sum = (vec)(0);
    uint chunk = get_group_id(0);
    for (uint pass = 0; pass < passes; pass++) {
        source p = src + (ulong)chunk * length;
        ulong i = get_local_id(0);
        for (; i < END; i += STEP) {
            vec got[UNROLL];
            EACH got[u] = p[i + u * APART];
            EACH sum ^= got[u];
        }
        for (i = REST; i < length; i += LOCAL)
            sum ^= p[i];
        sum += (vec)(pass);
        chunk += step;
        if (chunk >= chunks)
            chunk -= chunks;
    }
    if (any(sum == (vec)(NEVER)))
        out[get_global_id(0)] = sum;
}

__kernel void write_set(target dst, uint chunks, ulong length, uint step, uint passes)
{
    uint chunk = get_group_id(0);
    for (uint pass = 0; pass < passes; pass++) {
        target p = dst + (ulong)chunk * length;
        vec value = (vec)(pass + chunk);
        ulong i = get_local_id(0);
        for (; i < END; i += STEP)
            EACH p[i + u * APART] = value;
        for (i = REST; i < length; i += LOCAL)
            p[i] = value;
        chunk += step;
        if (chunk >= chunks)
            chunk -= chunks;
    }
}

__kernel void copy_set(target dst, source src, uint chunks, ulong length, uint step, uint passes)
{
    uint chunk = get_group_id(0);
    for (uint pass = 0; pass < passes; pass++) {
        source p = src + (ulong)chunk * length;
        target q = dst + (ulong)chunk * length;
        ulong i = get_local_id(0);
        for (; i < END; i += STEP) {
            vec got[UNROLL];
            EACH got[u] = p[i + u * APART];
            EACH q[i + u * APART] = got[u];
        }
        for (i = REST; i < length; i += LOCAL)
            q[i] = p[i];
        chunk += step;
        if (chunk >= chunks)
            chunk -= chunks;
    }
}

#if EVICT_FIRST
static inline ulong evict_first(void)
{
    ulong policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

static inline vec taken(source from)
{
    vec v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from), "l"(evict_first()));
    return v;
}

static inline void put(target to, vec v)
{
    asm volatile("st.global.L2::cache_hint.v4.u32 [%0], {%1, %2, %3, %4}, %5;"
                 : : "l"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "l"(evict_first()) : "memory");
}
#else
#define put(to, v) (*(to) = (v))
#if PAST_L1
static inline vec taken(source from)
{
    vec v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from));
    return v;
}
#else
#define taken(from) (*(from))
#endif
#endif

__kernel void read_once(source src, target out)
{
    ulong first = (ulong)get_group_id(0) * (LOCAL * UNROLL) + get_local_id(0);
    vec sum = (vec)(0), got[UNROLL];
    EACH got[u] = taken(src + first + u * LOCAL);
    EACH sum ^= got[u];
    if (any(sum == (vec)(NEVER)))
        out[get_global_id(0)] = sum;
}

__kernel void write_once(target dst)
{
    target to = dst + (ulong)get_group_id(0) * (LOCAL * UNROLL) + get_local_id(0);
    EACH put(to + u * LOCAL, (vec)(get_group_id(0)));
}

__kernel void copy_once(target dst, source src)
{
    ulong first = (ulong)get_group_id(0) * (LOCAL * UNROLL) + get_local_id(0);
    vec got[UNROLL];
    EACH got[u] = taken(src + first + u * LOCAL);
    EACH put(dst + first + u * LOCAL, got[u]);
}
