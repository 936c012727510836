//! Indexing, sorting, running results and remainders.

use crate::check::{Row, check, gradient_at};
use tallow::{Device, Result, Tensor, Var};

const CPU: &Device = &Device::Cpu;

fn row(name: &'static str, f: impl Fn(&Tensor) -> Result<Tensor> + 'static) -> Row {
    // The square makes the derivative depend on the place.
    Row::new(name, &[&[3, 4]], -2.0..2.0, move |x| f(&x[0])?.sqr())
}

fn ids(like: &Tensor, ids: &[[u32; 4]]) -> Result<Tensor> {
    Tensor::new(ids, like.device())
}

#[test]
fn by_index() {
    check(&[
        row("gather", |x| x.gather(&ids(x, &[[0, 0, 2, 1], [2, 1, 1, 1]])?, 0)),
        row("gather of a part", |x| x.gather(&ids(x, &[[3, 0, 0, 1]])?, 1)),
        row("index_select", |x| x.index_select(&Tensor::new([2u32, 0, 2], x.device())?, 0)),
    ]);
    let two = |name, f: fn(&Tensor, &Tensor, &Tensor) -> Result<Tensor>| {
        Row::new(name, &[&[3, 4], &[2, 4]], -2.0..2.0, move |x| {
            f(&x[0], &ids(&x[0], &[[0, 0, 2, 1], [2, 0, 2, 2]])?, &x[1])?.sqr()
        })
    };
    check(&[
        two("scatter", |x, ids, y| x.scatter(ids, y, 0)),
        two("scatter_add", |x, ids, y| x.scatter_add(ids, y, 0)),
        two("scatter_max", |x, ids, y| x.scatter_max(ids, y, 0)),
        two("scatter_min", |x, ids, y| x.scatter_min(ids, y, 0)),
        two("scatter of a part", |x, ids, y| x.scatter(&ids.narrow(1, 0, 2)?, y, 0)),
        two("index_add", |x, _, y| x.index_add(&Tensor::new([1u32, 1], x.device())?, y, 0)),
    ]);
}

#[test]
fn sorted() {
    check(&[
        row("sort", |x| x.sort(1, true).map(|sorted| sorted.0)),
        row("topk", |x| x.topk(2, 0, false).map(|best| best.0)),
        row("median", |x| x.median(1)),
        row("quantile", |x| x.quantile(0.4, 1)),
    ]);
}

#[test]
fn running() {
    check(&[
        row("cumsum", |x| x.cumsum(1)),
        row("cumprod", |x| x.cumprod(0)),
        row("cummax", |x| x.cummax(1)),
        row("cummin", |x| x.cummin(0)),
    ]);
}

#[test]
fn remainders() {
    let two = |name, f: fn(&Tensor, &Tensor) -> Result<Tensor>| {
        Row::new(name, &[&[2, 3], &[2, 3]], 0.3..2.0, move |x| f(&(&x[0] * -3.0)?, &x[1])?.sqr())
    };
    check(&[two("rem", |x, y| x % y), two("remainder", |x, y| x.remainder(y))]);
}

#[test]
fn running_products_with_zeros() -> Result<()> {
    // By the definition: the product without x_i, for each k >= i.
    for values in [[2f64, 0., 3., 4.], [0., 2., 0., 3.], [1., 2., 3., 0.]] {
        let x = Var::new(values, CPU)?;
        let got = gradient_at(&x, |x| x.cumprod(0))?;
        for (i, got) in got.into_iter().enumerate() {
            let without = |k: usize| (0..=k).filter(|&j| j != i).map(|j| values[j]).product::<f64>();
            assert_eq!(got, (i..4).map(without).sum::<f64>(), "{values:?} {i}");
        }
    }
    Ok(())
}

#[test]
fn equal_elements_share_and_the_last_of_several_writes_counts() -> Result<()> {
    let ids = Tensor::new([0u32, 0, 1], CPU)?;
    let (x, y) = (Var::new([5f64, 1., 7.], CPU)?, Var::new([5f64, 2., 0.], CPU)?);
    let grads = x.scatter_max(&ids, &y, 0)?.backward()?;
    assert_eq!(grads.get(&x).expect("of x").to_vec1::<f64>()?, [0.5, 1., 1.]);
    assert_eq!(grads.get(&y).expect("of y").to_vec1::<f64>()?, [0.5, 0., 0.]);
    let grads = x.scatter(&ids, &y, 0)?.backward()?;
    assert_eq!(grads.get(&x).expect("of x").to_vec1::<f64>()?, [0., 0., 1.]);
    assert_eq!(grads.get(&y).expect("of y").to_vec1::<f64>()?, [0., 1., 1.]);
    Ok(())
}

#[test]
fn running_products_have_second_derivatives_at_zeros() -> Result<()> {
    // The sum of the running products of x: its second derivative by i and j is that of the products without both.
    for values in [[2f64, 0., 3., 4.], [0., 2., 0., 3.], [1., 2., 3., 4.]] {
        let x = Var::new(values, CPU)?;
        let first = tallow::grad(&[&x.cumprod(0)?.sum_all()?], &[&x], true)?.remove(0);
        for i in 0..4 {
            let got = tallow::grad(&[&first.get(i)?], &[&x], false)?.remove(0).to_vec1::<f64>()?;
            for (j, got) in got.into_iter().enumerate() {
                let without = |k: usize| (0..=k).filter(|&l| l != i && l != j).map(|l| values[l]).product::<f64>();
                let want = if i == j { 0. } else { (i.max(j)..4).map(without).sum::<f64>() };
                assert_eq!(got, want, "{values:?} {i} {j}");
            }
        }
    }
    Ok(())
}
