//! Elements by index, scatter, sorting, and running results.

use super::{
    FLOATS, INTEGERS, NUMBERS, Row, SMALL, Shapes,
    Tolerance::{self, Exact, Whole},
};
use tallow::{
    D,
    DType::{self, F16, F32, F64, U8, U32},
    Result, Tensor,
};

type Run = fn(&[Tensor]) -> Result<Tensor>;

const fn one(name: &'static str, run: Run, dtypes: &'static [DType], range: (f64, f64), tolerance: Tolerance) -> Row {
    Row { name, run, dtypes, input_dtypes: &[], shapes: Shapes::Rows, range, tolerance }
}

/// Ids are the second input, as bytes below 9.
const fn by_index(name: &'static str, run: Run, dtypes: &'static [DType], shapes: Shapes, tolerance: Tolerance) -> Row {
    Row { name, run, dtypes, input_dtypes: &[None, Some(U8)], shapes, range: SMALL, tolerance }
}

const PICKS: Shapes = Shapes::Fixed(&[
    &[&[9, 5], &[4, 5]],
    &[&[9], &[7]],
    &[&[9, 2, 4], &[1, 2, 3]],
    &[&[9, 3], &[0, 3]],
    &[&[12, 67], &[131, 67]],
]);
const LAST_PICKS: Shapes = Shapes::Fixed(&[&[&[5, 9], &[5, 4]], &[&[3, 2, 10], &[2, 2, 33]]]);
const WRITES: Shapes = Shapes::Fixed(&[
    &[&[9, 5], &[4, 5], &[4, 5]],
    &[&[9], &[70], &[70]],
    &[&[9, 2, 4], &[3, 2, 4], &[3, 2, 4]],
    &[&[9, 3], &[0, 3], &[0, 3]],
    &[&[12, 67], &[31, 67], &[31, 67]],
    &[&[9, 5], &[4, 3], &[6, 5]],
]);
const LAST_WRITES: Shapes = Shapes::Fixed(&[&[&[5, 9], &[5, 14], &[5, 14]], &[&[3, 2, 10], &[3, 2, 33], &[3, 2, 33]]]);
const ADDS: Shapes = Shapes::Fixed(&[
    &[&[9, 5], &[4], &[4, 5]],
    &[&[9], &[70], &[70]],
    &[&[10, 300], &[20], &[20, 300]],
    &[&[9, 3], &[0], &[0, 3]],
]);

pub const INDEXING: &[Row] = &[
    by_index("gather", |x| x[0].gather(&x[1], 0), NUMBERS, PICKS, Exact),
    by_index("gather_last", |x| x[0].gather(&x[1], D::Minus1), &[F32, U8], LAST_PICKS, Exact),
    by_index("scatter", |x| x[0].scatter(&x[1], &x[2], 0), NUMBERS, WRITES, Exact),
    by_index("scatter_last", |x| x[0].scatter(&x[1], &x[2], D::Minus1), &[F32, U8], LAST_WRITES, Exact),
    by_index("scatter_add", |x| x[0].scatter_add(&x[1], &x[2], 0), FLOATS, WRITES, Whole(2e-6)),
    by_index("scatter_add_int", |x| x[0].scatter_add(&x[1], &x[2], 0), INTEGERS, WRITES, Exact),
    by_index("scatter_max", |x| x[0].scatter_max(&x[1], &x[2], 0), NUMBERS, WRITES, Exact),
    by_index("scatter_min", |x| x[0].scatter_min(&x[1], &x[2], D::Minus1), NUMBERS, LAST_WRITES, Exact),
    by_index("index_add", |x| x[0].index_add(&x[1], &x[2], 0), &[F32, F16, F64, U32], ADDS, Whole(2e-6)),
    one("arg_sort", |x| x[0].arg_sort(D::Minus1, false), NUMBERS, SMALL, Exact),
    one("arg_sort_descending", |x| x[0].arg_sort(D::Minus1, true), NUMBERS, SMALL, Exact),
    one("sort", |x| Ok(x[0].sort(D::Minus1, true)?.0), NUMBERS, SMALL, Exact),
    one("sort_first", |x| Ok(x[0].sort(0, false)?.0), NUMBERS, SMALL, Exact),
    one("topk", |x| Ok(x[0].topk(1, D::Minus1, true)?.0), &[F32, F16], SMALL, Exact),
    one("cumsum", |x| x[0].cumsum(D::Minus1), FLOATS, (-1.0, 1.0), Whole(4e-6)),
    one("cumsum_int", |x| x[0].cumsum(D::Minus1), INTEGERS, SMALL, Whole(4e-6)),
    one("cumsum_first", |x| x[0].cumsum(0), NUMBERS, SMALL, Whole(4e-6)),
    one("cumprod", |x| x[0].cumprod(D::Minus1), FLOATS, (0.7, 1.3), Whole(1e-5)),
    one("cumprod_int", |x| x[0].cumprod(D::Minus1), INTEGERS, SMALL, Exact),
    one("cummax", |x| x[0].cummax(D::Minus1), NUMBERS, SMALL, Exact),
    one("cummin", |x| x[0].cummin(0), NUMBERS, SMALL, Exact),
    one("bincount", |x| x[0].to_dtype(U32)?.bincount(9), &[F32], SMALL, Exact),
    one("histogram", |x| x[0].histogram(7, 1.0, 8.0), &[U8, F32], SMALL, Exact),
    one("median", |x| x[0].median(D::Minus1), NUMBERS, SMALL, Exact),
];
