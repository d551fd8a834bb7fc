"""Every limit that decides which way something is computed, or bounds what is kept: in one table.

A **threshold** decides between two ways that give the same result. Behind its name stands the
benchmark whose rows it was chosen by. To measure one again, run that with the threshold moved out
of the way, and compare the ratios to PyTorch:

    python -m benchmarks operations --rows add --sizes 16384 65536
    ADJOINT_LIMITS=PARALLEL=0 python -m benchmarks operations --rows add --sizes 16384 65536

A **bound** limits memory: how many things a cache keeps, how large buffers are.

Users read `policy.NAME` when they decide, so tests may set it here. What is laid out in machine
code (rows of a tile, vectors in a loop) is no policy: it stands beside the code.
"""

from __future__ import annotations

from typing import NamedTuple

from . import config
from .errors import InvalidArgument


class Limit(NamedTuple):
    """One entry: its value here, and the benchmark that repeats the measurement; "" for a bound of
    memory.
    """

    value: int
    repeat: str


LIMITS: dict[str, Limit] = {}


def _given() -> dict[str, int]:
    """The limits set by `ADJOINT_LIMITS`, by name."""
    limits = {}
    for part in filter(None, config.read("ADJOINT_LIMITS").split(",")):
        name, _, value = part.partition("=")
        if not value.isdecimal():
            raise InvalidArgument(f"ADJOINT_LIMITS: {part!r}; write NAME=number,NAME=number")
        limits[name] = int(value)
    return limits


_wanted = _given()


def _threshold(name: str, value: int, repeat: str) -> int:
    LIMITS[name] = Limit(_wanted.get(name, value), repeat)
    return LIMITS[name].value


def _bound(name: str, value: int) -> int:
    return _threshold(name, value, "")


# ---- NumPy or kernels ----------------------------------------------------------------------------

# elements above which an array is large: kernels pay for ops that NumPy does in one call
LARGE = _threshold(
    "LARGE", config.read_count("ADJOINT_NATIVE_SIZE"), "operations --sizes 1024 4096 16384"
)
# the same for ops that become kernels, or have routines: a launch costs less than NumPy's call
SMALL = _threshold("SMALL", 0, "operations --sizes 1 15 64")
# elements from which a composite's kernels pay, beside its ops launched one by one
COMPOSITE_SMALLEST = _threshold(
    "COMPOSITE_SMALLEST", SMALL + 1, "operations --rows composite --sizes 1 15 64"
)
# indices up to which a loop compares each with its bound quicker than NumPy all of them
INDICES_FEW = _threshold("INDICES_FEW", 4096, "compile --rows small dqn")
# elements up to which a kernel finds the place of the largest quicker than NumPy
PLACES = _threshold("PLACES", 4096, "operations --rows argmax --sizes 1024 4096 16384")
# elements up to which looking at each index costs less than finding those that are meant
SCATTER_FEW = _threshold("SCATTER_FEW", 1024, "operations --rows scatter --sizes 64 4096")

# ---- threads and the GIL -------------------------------------------------------------------------

# plans of a kernel before one is written down as a function: sizes that stay need none
PLANS_ALONE = _threshold("PLANS_ALONE", 2, "sizes --rows add")

# elements from which threads share the work of a kernel
PARALLEL = _threshold("PARALLEL", 32768, "operations --rows add --sizes 16384 65536")
# random numbers from which threads share the work
DRAWS_PARALLEL = _threshold("DRAWS_PARALLEL", 32768, "operations --rows rand --sizes 16384 65536")
# random numbers below which the GIL is kept: letting it go costs a microsecond
DRAWS_QUICK = _threshold("DRAWS_QUICK", 16384, "operations --rows rand --sizes 4096 16384")
# multiply-adds below which a product keeps the GIL
GEMM_QUICK = _threshold("GEMM_QUICK", 1 << 19, "layers --only matmul")
# elements above which sums of cotangents are worth several threads
ENGINE_MANY = _threshold("ENGINE_MANY", 1 << 18, "training")
# elements of a chunk of a routine; the number of chunks does not depend on the threads
ROUTINE_GRAIN = _threshold("ROUTINE_GRAIN", 16384, "operations --rows gather")
# elements in all below which a routine keeps the GIL
ROUTINE_QUICK = _threshold("ROUTINE_QUICK", 16384, "operations --rows gather --sizes 4096 16384")
# units of work below which a large reduction is split, and elements from which it is
REDUCTION_FEW = _threshold("REDUCTION_FEW", 16, "operations --rows sum")
REDUCTION_SPLIT = _threshold("REDUCTION_SPLIT", 65536, "operations --rows sum")
# additions below which a kernel keeps the GIL
KERNEL_QUICK = _threshold("KERNEL_QUICK", 65536, "operations --rows add --sizes 16384 65536")
# additions that one chunk of a loop should have, at least: some microseconds' work
LOOP_GRAIN = _threshold("LOOP_GRAIN", 16384, "operations --rows add --sizes 65536 1048576")
# parts of a reduction that is split: elements at least, how many at most, elements per result
REDUCTION_PIECE = _threshold("REDUCTION_PIECE", 32768, "operations --rows sum")
REDUCTION_PIECES = _threshold("REDUCTION_PIECES", 64, "operations --rows sum")
REDUCTION_SHARE = _threshold("REDUCTION_SHARE", 16, "operations --rows sum")
# columns of a tile of a reduction over rows that are done with registers alone, at most; tiles that
# are enough to share among threads
REDUCTION_NARROW = _threshold("REDUCTION_NARROW", 128, "operations --rows sum")
REDUCTION_TILES = _threshold("REDUCTION_TILES", 16, "operations --rows sum")
# elements of a row that are done before the next row's, where strides are across
LOOP_TILE = _threshold("LOOP_TILE", 256, "operations --rows contiguous")
# elements that one turn of an optimizer's loop over many tensors does: some microseconds' work
OPTIMIZER_CHUNK = _threshold("OPTIMIZER_CHUNK", 8192, "optimizers")
# additions, or multiply-adds, from which threads go apart through small calls that follow one
# another, and above which a call is shared by itself
REGION_LEAST = _threshold("REGION_LEAST", 1 << 16, "compile --rows pinn characters dqn")
REGION_MOST = _threshold("REGION_MOST", 1 << 20, "compile --rows pinn characters dqn")
# bytes of all results of a program above which its order is not changed for that
REGION_BYTES = _threshold("REGION_BYTES", 1 << 22, "compile --rows pinn characters dqn")
# microseconds that a waiting thread looks for work before it sleeps
POOL_SPIN = _threshold("POOL_SPIN", 2000, "training")

# ---- graphs --------------------------------------------------------------------------------------

# cells of a graph that one kernel computes; half as many from CHAIN_LARGE elements on; only what
# came CHAIN_SEEN times before is compiled
CHAIN = _threshold("CHAIN", 8, "graphs --only chains")
CHAIN_LARGE = _threshold("CHAIN_LARGE", 1 << 14, "graphs --only chains")
CHAIN_SEEN = _threshold("CHAIN_SEEN", 32, "graphs --only chains")
# cells of a call of a composite from which a graph computes them together
REGION_CELLS = _threshold("REGION_CELLS", 8, "graphs --only backward")

# ---- writing in place ----------------------------------------------------------------------------

# elements up to which a copy costs less than the checks of a write
WRITE_FEW = _threshold("WRITE_FEW", 1024, "operations --rows index_add_ --sizes 64 4096")

# ---- composites ----------------------------------------------------------------------------------

# elements from which a composite's input is large, and how many times as many it has as what is
# small: statistics of rows are kept for the gradient
KEPT_LARGE = _threshold("KEPT_LARGE", 1 << 14, "operations --rows layer_norm")
KEPT_SHARE = _threshold("KEPT_SHARE", 16, "operations --rows layer_norm")
# ops in one kernel of a frozen module: more would take long to compile, and spill registers
PROGRAM_OPS = _threshold("PROGRAM_OPS", 48, "inference")
# elements to which something is expanded for an elementwise op, from which on the op rather
# broadcasts it: smaller ones are faster in kernels apart (encoder layer of 16 Ki elements 0.94,
# GPT of 96 Ki 1.0, residual network of 256 Ki 1.04 times as fast)
EXPANDED = _threshold("EXPANDED", 1 << 16, "compile")
# elements that a GPU copies or casts by a kernel of ours, not PyTorch's
BROUGHT = _threshold("BROUGHT", 1 << 12, "cuda")
# elements of one cast in a program on a GPU that is a kernel of ours
CAST = _threshold("CAST", 1 << 16, "cuda")
# elements of images whose batch norm on a GPU is written as moments and elementwise ops: those of
# fewer take as long as their launches
OPENED_NORM = _threshold("OPENED_NORM", 1 << 18, "cuda")
# products that do not need each other, from which on they are one step; of two it makes no odds
PRODUCTS = _threshold("PRODUCTS", 4, "compile --rows products")
# bytes of all that is computed between two ops above which they are not one step, where what reads
# the first one's result would have to wait for it
APART = _threshold("APART", 1 << 22, "compile --rows products")
# bytes of a sum's terms from which they are added one by one, and freed, rather than all at once
RUNNING_SUM = _threshold("RUNNING_SUM", 1 << 16, "compile --rows characters")
# images and weights of a convolution, of fewer and of more than which oneDNN's blocks do not pay;
# how many times its elements what crosses a border of blocks costs, which reads and writes memory
# (the small ResNet has none and is 1.2 times as fast, ResNet-18 has 18 and is 1.02 times)
BLOCKED_IMAGES = _threshold("BLOCKED_IMAGES", 4, "compile --rows resnet")
BLOCKED_WEIGHTS = _threshold("BLOCKED_WEIGHTS", 1 << 18, "compile --rows resnet")
BLOCKED_BORDER = _threshold("BLOCKED_BORDER", 2, "compile --rows resnet")
# products that take about as long as a division
DIVISION = _threshold("DIVISION", 8, "operations --rows div")
# small steps of an optimizer before a kernel is compiled for its formula
OPTIMIZER_PATIENCE = _threshold("OPTIMIZER_PATIENCE", 8, "optimizers")
# elements of a block of an optimizer's step without kernels: it stays in the processor's cache
OPTIMIZER_BLOCK = _threshold("OPTIMIZER_BLOCK", 1 << 16, "optimizers")
# elements of a gradient whose norm is not worth a call of its own
CLIP_SMALL = _threshold("CLIP_SMALL", 4096, "optimizers")

# ---- matrix products -----------------------------------------------------------------------------

# multiply-adds up to which a call of NumPy's costs less than a plan; where the right operand is
# stored by rows; for less than 16 columns
PRODUCT_SMALL = _threshold("PRODUCT_SMALL", 1 << 15, "layers --only matmul linear")
PRODUCT_SMALL_BY_ROWS = _threshold("PRODUCT_SMALL_BY_ROWS", 1 << 18, "layers --only linear")
PRODUCT_FEW_COLUMNS = _threshold("PRODUCT_FEW_COLUMNS", 1 << 20, "layers --only matmul linear")
# multiply-adds up to which generated code beats NumPy and oneDNN: it is called by pointer
PRODUCT_LITTLE = _threshold("PRODUCT_LITTLE", 1 << 15, "layers --only matmul linear")
# the same of a matrix and a vector
PRODUCT_VECTOR = _threshold("PRODUCT_VECTOR", 1 << 14, "layers --only linear --batch 1")
# elements of the weight of a product of few rows, below which tiles are faster (4 x 4: 4 times)
PRODUCT_WEIGHT_LEAST = _threshold("PRODUCT_WEIGHT_LEAST", 256, "products")
# bytes of the weight of a product of few rows that are worth a thread's coming
PRODUCT_PART_BYTES = _threshold("PRODUCT_PART_BYTES", 1 << 18, "products --only rows")
# rows, of so many columns at least, below which oneDNN is faster for float32
PRODUCT_FEW_ROWS = _threshold("PRODUCT_FEW_ROWS", 32, "layers --only linear --batch 1 32")
# multiply-adds from which NumPy's BLAS is faster for float64
PRODUCT_LARGE_DOUBLE = _threshold("PRODUCT_LARGE_DOUBLE", 1 << 26, "layers --only matmul")
# elements of an outer product up to which NumPy is faster, and of a part of a larger one
OUTER_SMALL = _threshold("OUTER_SMALL", 1 << 12, "operations --rows outer")
OUTER_PART = _threshold("OUTER_PART", 1 << 16, "operations --rows outer")
# multiply-adds that a part of a product should have at least
PRODUCT_GRAIN = _threshold("PRODUCT_GRAIN", 1 << 16, "compile --rows pinn dqn mlp")
# bytes of weights, from which a few windows (so many) are multiplied with them at once; rows of a
# product from which parts of the rows are better than of the columns: in frozen modules
LAYER_STREAMED_BYTES = _threshold("LAYER_STREAMED_BYTES", 1 << 20, "inference")
LAYER_STREAMED_WINDOWS = _threshold("LAYER_STREAMED_WINDOWS", 32, "inference")
LAYER_FEWEST_ROWS = _threshold("LAYER_FEWEST_ROWS", 8, "inference")
# rows up to which products with constants in panels beat oneDNN's, by 1.1 to 4 times (with more,
# they are equal); panels for each thread, with fewer of which threads share the rows
PANELS_ROWS = _threshold("PANELS_ROWS", 256, "inference")
PANELS_SHARED = _threshold("PANELS_SHARED", 4, "inference")
# channels below which a frozen layer's values stay in plain order
LAYER_FEW_CHANNELS = _threshold("LAYER_FEW_CHANNELS", 4, "inference")

# ---- convolution, pooling, attention, recurrent layers -------------------------------------------

# multiply-adds below which NumPy's convolution costs less than a plan
CONVOLUTION_SMALL = _threshold("CONVOLUTION_SMALL", 1 << 12, "layers --only conv")
# multiply-adds that a part of a convolution should have at least
CONVOLUTION_GRAIN = _threshold("CONVOLUTION_GRAIN", 1 << 21, "layers --only conv")
# bytes of images and values that a part may have, so that copies stay in the cache; such parts
CONVOLUTION_CACHED = _threshold("CONVOLUTION_CACHED", 1 << 20, "layers --only conv --batch 32")
CONVOLUTION_MOST = _threshold("CONVOLUTION_MOST", 64, "layers --only conv --batch 32")
# elements of images below which NumPy's pooling costs less than a plan, and in a part
POOLING_SMALL = _threshold("POOLING_SMALL", 1 << 10, "layers --only pool")
POOLING_GRAIN = _threshold("POOLING_GRAIN", 1 << 16, "layers --only pool")
# elements in a row of maxima below which several planes are computed at once
POOLING_NARROW = _threshold("POOLING_NARROW", 4, "layers --only pool")
# queries below which a product with each of them alone is faster
ATTENTION_FEW = _threshold("ATTENTION_FEW", 8, "attention")
# queries from which on a program computes attention by the routine, and not by its own kernels
ATTENTION_WHOLE = _threshold("ATTENTION_WHOLE", 128, "attention")
# scores from which on narrow floats are widened, rather than the scores be stored
ATTENTION_MANY = _threshold("ATTENTION_MANY", 1 << 23, "attention")
# that a pass is at least cut into, where it is long enough
ATTENTION_CHUNKS = _threshold("ATTENTION_CHUNKS", 8, "attention")
# blocks of queries for which a block of keys is fetched once, at most
ATTENTION_SPAN = _threshold("ATTENTION_SPAN", 4, "attention")
# rows up to which the input's products are made before the time loop; the same where its weights
# have more bytes than the third: they would not stay in a core's cache from step to step
RECURRENT_FEW = _threshold("RECURRENT_FEW", 4, "recurrent")
RECURRENT_FEW_LARGE = _threshold("RECURRENT_FEW_LARGE", 32, "recurrent")
RECURRENT_LARGE = _threshold("RECURRENT_LARGE", 1 << 20, "recurrent")
# rows of all steps from which the weights' gradients are one product
RECURRENT_MANY = _threshold("RECURRENT_MANY", 512, "recurrent")
# rows of a chunk, at least
RECURRENT_CHUNK = _threshold("RECURRENT_CHUNK", 8, "recurrent")

# ---- many small matrices -------------------------------------------------------------------------

# rows of matrices that routines factor or invert, a vector of matrices at once, at most; and of
# how many rows for each matrix of the batch, of which there are at least two
SMALL_ROWS = _threshold("SMALL_ROWS", 64, "operations --rows cholesky inv solve")
SMALL_ROWS_EACH = _threshold("SMALL_ROWS_EACH", 8, "operations --rows cholesky inv solve")

# ---- moving and ranking --------------------------------------------------------------------------

# arrays of a list above which NumPy joins them, and elements of the first up to which it does
JOINED_FEW = _threshold("JOINED_FEW", 16, "operations --rows stack --sizes 4096 65536")
JOINED_SMALL = _threshold("JOINED_SMALL", 1024, "operations --rows stack --sizes 4096 65536")
# bytes that are one unit of work of a copy, at most
COPY_BLOCK = _threshold("COPY_BLOCK", 1 << 16, "operations --rows contiguous")
# places that are looked for without sorting, and elements of a row that is sorted so
RANK_MOST = _threshold("RANK_MOST", 64, "operations --rows topk")
RANK_SORTED = _threshold("RANK_SORTED", 16, "operations --rows sort")
# of the rows that are added to, at most: each part reads the whole index; and bytes of a row
SCATTER_PARTS = _threshold("SCATTER_PARTS", 16, "operations --rows index_add")
SCATTER_PART_BYTES = _threshold("SCATTER_PART_BYTES", 256, "operations --rows index_add")

# ---- what is kept --------------------------------------------------------------------------------

# bytes of all that is kept by sizes and strides for the case that they come again, and at most,
# where they do and were dropped (oneDNN's plans for five sizes of a ResNet-50 take 50 MiB); how
# many keys of what was dropped are remembered; about how many bytes an executable or another
# launcher takes, a composite's plan beside its launchers, what is a key and little else (a step of
# 17 executables, with their plans, takes 60 KiB)
SIZED_BYTES = _bound("SIZED_BYTES", 32 << 20)
SIZED_BYTES_MOST = _bound("SIZED_BYTES_MOST", 256 << 20)
DROPPED_KEYS = _bound("DROPPED_KEYS", 1 << 16)
EXECUTABLE_BYTES = _bound("EXECUTABLE_BYTES", 2 << 10)
COMPOSITE_BYTES = _bound("COMPOSITE_BYTES", 2 << 10)
KEY_BYTES = _bound("KEY_BYTES", 1 << 9)
PATTERNS = _bound("PATTERNS", 4096)  # kinds of calls of ops, and of one composite, but for sizes
VARIANTS = _bound("VARIANTS", 8)  # kernels for one key, between which numbers decide
SIZE_VARIANTS = _bound("SIZE_VARIANTS", 32)  # kernels for one key, between which sizes decide
WRITTEN_TEXTS = _bound("WRITTEN_TEXTS", 1024)  # of functions of sizes; some KiB of code each
KERNELS = _bound("KERNELS", 4096)  # machine code that nothing may refer to; two mappings each
LINKED_TOGETHER = _bound("LINKED_TOGETHER", 32)  # of it, in one engine, which goes with the last
CHAINS = _bound("CHAINS", 4096)  # of one graph: how often they came
CHAINS_MADE = _bound("CHAINS_MADE", 4)  # of them at one refresh: that is milliseconds each
NUMBERS = _bound("NUMBERS", 64)  # of one call, remembered to see which come again
# primitives that oneDNN keeps by itself, of some 40 KiB each: equal layers of a program share them
ONEDNN_PRIMITIVES = _bound("ONEDNN_PRIMITIVES", 64)
# bytes that a scan keeps for its gradient; beyond, it keeps what segments begin with, and runs them
# again: a forward more
SCAN_KEEPS = _bound("SCAN_KEEPS", 1 << 30)
# turns of ad.scan from which its function is captured at once; else from the second call on
SCAN_AT_ONCE = _threshold("SCAN_AT_ONCE", 64, "loops")
# turns below which Python runs them
SCAN_FEW = _threshold("SCAN_FEW", 4, "loops")
SCAN_BODIES = _bound("SCAN_BODIES", 256)  # functions of ad.scan of which something is kept
SCAN_BYTES = _bound("SCAN_BYTES", 1 << 28)  # of tensors that they read elsewhere, and keep alive
SCAN_FORMS = _bound("SCAN_FORMS", 16)  # of one function, by the shapes and constants that it holds
SCAN_CAPTURES = _bound("SCAN_CAPTURES", 4)  # of one function without a call that used one
SCAN_HOLDS = _bound("SCAN_HOLDS", 1024)  # things that a function may hold, which each call looks at
RECURRENT_LOOPS = _bound("RECURRENT_LOOPS", 512)  # machine code of layers, forward and backward
OPTIMIZER_TABLES = _bound("OPTIMIZER_TABLES", 8)  # numbers of rows of one formula
VIEWS = _bound("VIEWS", 256)  # of one op (split, unbind), up to which it is kept how they are made
INTERNED = _bound("INTERNED", 1024)  # ops of one class, by their fields
INTERNED_TYPED = _bound("INTERNED_TYPED", 4096)  # of all classes where types of fields count
FROZEN_PLANS = _bound("FROZEN_PLANS", 16)  # shapes of inputs of a frozen module
COMPILED_PROGRAMS = _bound("COMPILED_PROGRAMS", 16)  # of one compiled function
COMPILED_WARNED = _bound("COMPILED_WARNED", 4)  # of them, from which a warning says why; and twice
CACHE_FILLS = _bound("CACHE_FILLS", 8)  # captures after which an lru_cache is taken to fill in each
PAGE_INLINE = _bound("PAGE_INLINE", 1 << 20)  # bytes of a page that a notebook holds
COMPILED_SIZES = _bound("COMPILED_SIZES", 1024)  # of arguments, for which a function has programs,
COMPILED_BYTES = _bound("COMPILED_BYTES", 1 << 30)  # and of their memory; the last used are kept
COMPILED_COUNTED = _bound("COMPILED_COUNTED", 64)  # calls between which programs are weighed anew
SIZED_CAPTURES = _bound("SIZED_CAPTURES", 4)  # of one signature, with sizes that are numbers
SIZED_LOWERINGS = _bound("SIZED_LOWERINGS", 8)  # of one such capture, between which sizes decide
COMPILED_NODES = _bound("COMPILED_NODES", 64)  # signatures that are nodes of graphs, with memory
COMPILED_PIECES = _bound("COMPILED_PIECES", 64)  # traces that mode="pieces" knows of a function
# bytes of a NumPy array that a compiled function reads, which is compared before each call
GUARDED_BYTES = _bound("GUARDED_BYTES", 1 << 20)
# attributes and items that a compiled function can reach by the names in its code: looking at more
# takes seconds: a whole library is reached by way of some object
GUARDED_SLOTS = _bound("GUARDED_SLOTS", 1 << 17)
# code objects whose names are kept: fewer than one snapshot goes through would be none at all
CODE_FACTS = _bound("CODE_FACTS", 1 << 14)
EXPLAINED = _bound("EXPLAINED", 5)  # calls of which explain() reports each step's fastest time
# values of steps of a graph: blocks in which nobody asks for them until they are forgotten, how
# many one block may note at a time, bytes of what is kept; nanoseconds that looking for a value
# costs, blocks until that is tried again where it did not pay
STEP_BLOCKS = _bound("STEP_BLOCKS", 8)
STEP_NOTED = _bound("STEP_NOTED", 4096)
STEP_BYTES = _bound("STEP_BYTES", 1 << 30)
STEP_LOOK = _threshold("STEP_LOOK", 25_000, "graphs --only steps")
STEP_WAIT = _threshold("STEP_WAIT", 256, "graphs --only steps")
BACKWARD_PLANS = _bound("BACKWARD_PLANS", 32)  # that a graph remembers
REPEATS_SEEN = _bound("REPEATS_SEEN", 64)  # repeating cells of a graph that each read glances at
DISPATCH_LINES = _bound("DISPATCH_LINES", 1 << 14)  # of the dispatch log, each said once
# elements of all constants that are computed while freezing
FOLDED_ELEMENTS = _bound("FOLDED_ELEMENTS", 1 << 26)
# peaks of memory in a program that are looked at: each of several batches in one step has its own
PEAKS = _bound("PEAKS", 16)
# bytes of addresses that are taken at once, for values whose places are not known yet
ADDRESSES = _bound("ADDRESSES", 64 << 20)
# bytes: work memory that a thread keeps between calls, reordered weights
WORKSPACE_BYTES = _bound("WORKSPACE_BYTES", 64 << 20)
WEIGHT_BYTES = _bound("WEIGHT_BYTES", 256 << 20)
# blocks of freed memory: bytes from which they are kept, blocks of one size
BLOCK_SMALLEST = _bound("BLOCK_SMALLEST", 1 << 16)
BLOCK_SLOTS = _bound("BLOCK_SLOTS", 64)
# bytes of what functions such as `zeros` gave, up to which it is kept to be copied
TEMPLATE = _bound("TEMPLATE", 1024)
# exceptions of handlers that replacing one handler outlasts; seconds that a fork waits for locks
SIGNAL_ATTEMPTS = _bound("SIGNAL_ATTEMPTS", 100)
FORK_PATIENCE = _bound("FORK_PATIENCE", 10)
# elements of 16 bytes, the widest, in what 63 bits address
MOST_ELEMENTS = _bound("MOST_ELEMENTS", 1 << 59)
# bytes that a copy moves while it holds the GIL: few enough that no thread waits long
COPY_HELD = _bound("COPY_HELD", 1 << 18)

_unknown = _wanted.keys() - LIMITS.keys()
if _unknown:
    raise InvalidArgument(f"ADJOINT_LIMITS: {min(_unknown)}; there are {', '.join(LIMITS)}")
