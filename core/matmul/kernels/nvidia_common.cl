// Shared by the NVIDIA kernels: barriers in shared memory, the bulk copy engine, asynchronous copies,
// warp-group fences. Shared-memory addresses are 32-bit numbers. An instruction that starts with //@
// is hidden from the front end and uncovered in the program's PTX text.

// A macro's value as a string, for instruction names that the build defines.
#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

static inline uint shared_address(__local void *p) { return (uint)(ulong)p; }

// ---- transaction barriers

static inline void barrier_init(uint bar, uint arrivals)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" : : "r"(bar), "r"(arrivals) : "memory");
}

// Makes barriers initialised by one work-item visible to the copy engine; a work-group barrier must follow.
static inline void barrier_init_done(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
    asm volatile("fence.proxy.async;" : : : "memory");
}

static inline void barrier_expect_bytes(uint bar, uint bytes)
{
    asm volatile("{.reg .b64 state; mbarrier.arrive.expect_tx.shared.b64 state, [%0], %1;}"
                 : : "r"(bar), "r"(bytes) : "memory");
}

static inline void barrier_arrive(uint bar)
{
    asm volatile("{.reg .b64 state; mbarrier.arrive.shared.b64 state, [%0];}" : : "r"(bar) : "memory");
}

static inline void barrier_wait(uint bar, uint phase)
{
    uint done;
    do {
        asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                     : "=r"(done) : "r"(bar), "r"(phase) : "memory");
    } while (!done);
}

static inline void converge_warp(void) { asm volatile("bar.warp.sync 0xffffffff;" : : : "memory"); }

// ---- copies into shared memory

// One box of a 4-axis tensor map: x along the contiguous axis, y along the next, then two batch axes.
static inline void copy_box(uint to, __global const uchar *map, uint x, uint y, uint z, uint w, uint bar)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4, %5}], [%6];"
                 : : "r"(to), "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(bar) : "memory");
}

static inline void prefetch_map(__global const uchar *map)
{
    asm volatile("prefetch.tensormap [%0];" : : "l"(map) : "memory");
}

// 16 bytes, of which only the first `valid` are read and the rest become zero.
static inline void copy_16(uint to, __global const uchar *from, uint valid)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
                 : : "r"(to), "l"(from), "r"(valid) : "memory");
}

// One element of 4 bytes, or zero.
static inline void copy_4(uint to, __global const float *from, bool inside)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" : : "r"(to), "l"(from), "r"(inside ? 4 : 0) : "memory");
}

static inline void copies_commit(void) { asm volatile("cp.async.commit_group;" : : : "memory"); }

#define COPIES_WAIT(in_flight) asm volatile("cp.async.wait_group %0;" : : "n"(in_flight) : "memory")

// Ordinary writes to shared memory before this are seen by wgmma and the copy engine after it.
static inline void publish_to_async(void) { asm volatile("fence.proxy.async;" : : : "memory"); }

// ---- warp-group products (sm_90a)

static inline void products_begin(void) { asm volatile("//@wgmma.fence.sync.aligned;" : : : "memory"); }
static inline void products_commit(void) { asm volatile("//@wgmma.commit_group.sync.aligned;" : : : "memory"); }

#define PRODUCTS_WAIT(in_flight) asm volatile("//@wgmma.wait_group.sync.aligned %0;" : : "n"(in_flight) : "memory")
#define REGISTERS_GIVE_BACK(count) asm volatile("//@setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"(count))
#define REGISTERS_TAKE(count) asm volatile("//@setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"(count))

// Descriptor of a tile in shared memory whose rows are 128 bytes, swizzled; strides in bytes.
static inline ulong tile_descriptor(uint address, uint leading_stride, uint stride)
{
    return 1ul << 62 | (ulong)(stride >> 4) << 32 | (ulong)(leading_stride >> 4) << 16 | (ulong)(address >> 4);
}

// ---- which tile

// Tiles are walked in bands of `band` rows of tiles, so that tiles in flight together share operands in L2.
static inline uint2 tile_of(uint index, uint tiles_m, uint tiles_n, uint band)
{
    uint per_band = band * tiles_n;
    uint first = index / per_band * band;
    uint height = min(tiles_m - first, band);
    uint inside = index % per_band;
    return (uint2)(first + inside % height, inside / height);
}
