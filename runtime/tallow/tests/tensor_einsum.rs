//! Einstein summation against plain loops over all indices.

use std::collections::BTreeMap;
use tallow::{Device, Result, Tensor};

const CPU: &Device = &Device::Cpu;

/// The value by definition: every assignment of positions to names adds the product of the operands' elements there.
fn by_loops(inputs: &[&str], output: &str, operands: &[(&[usize], &[f64])]) -> (Vec<usize>, Vec<f64>) {
    let mut sizes: BTreeMap<char, usize> = BTreeMap::new();
    for (names, (dims, _)) in inputs.iter().zip(operands) {
        for (c, &d) in names.chars().zip(dims.iter()) {
            let size = sizes.entry(c).or_insert(1);
            *size = if d == 1 { *size } else { d };
        }
    }
    let names: Vec<char> = sizes.keys().copied().collect();
    let dims: Vec<usize> = output.chars().map(|c| sizes[&c]).collect();
    let mut out = vec![0.0; dims.iter().product()];
    for mut n in 0..sizes.values().product::<usize>() {
        let mut at: BTreeMap<char, usize> = BTreeMap::new();
        for c in names.iter().rev() {
            at.insert(*c, n % sizes[c]);
            n /= sizes[c];
        }
        let place = |text: &str, dims: &[usize]| {
            text.chars().zip(dims).fold(0, |p, (c, &d)| p * d + if d == 1 { 0 } else { at[&c] })
        };
        let product: f64 = inputs.iter().zip(operands).map(|(names, (dims, data))| data[place(names, dims)]).product();
        out[place(output, &dims)] += product;
    }
    (dims, out)
}

/// Runs an equation with single letters for every axis on both sides.
fn check(equation: &str, expanded: &str, shapes: &[&[usize]]) -> Result<()> {
    let (inputs, output) = expanded.split_once("->").unwrap();
    let inputs: Vec<&str> = inputs.split(',').collect();
    let data: Vec<Vec<f64>> = shapes
        .iter()
        .enumerate()
        .map(|(i, dims)| (0..dims.iter().product()).map(|k| ((k * 7 + i * 3 + 1) % 11) as f64 - 5.0).collect())
        .collect();
    let operands: Vec<(&[usize], &[f64])> = shapes.iter().zip(&data).map(|(s, d)| (*s, d.as_slice())).collect();
    let (dims, want) = by_loops(&inputs, output, &operands);
    let tensors: Vec<Tensor> =
        operands.iter().map(|(dims, data)| Tensor::from_slice(data, *dims, CPU)).collect::<Result<_>>()?;
    let got = Tensor::einsum(equation, &tensors)?;
    assert_eq!(got.dims(), dims, "{equation}");
    // Small whole numbers: every order of summation gives the same.
    assert_eq!(got.flatten_all()?.to_vec1::<f64>()?, want, "{equation}");
    Ok(())
}

#[test]
fn equations_of_every_kind() -> Result<()> {
    for (equation, shapes) in [
        ("ij,jk->ik", &[&[3usize, 4][..], &[4, 5][..]][..]),
        ("ij,jk->ki", &[&[3, 4], &[4, 5]]),
        ("ij,ij->", &[&[3, 4], &[3, 4]]),
        ("ij->ji", &[&[3, 4]]),
        ("ij->", &[&[3, 4]]),
        ("ij->j", &[&[3, 4]]),
        ("i,j->ij", &[&[3], &[4]]),
        ("i,i->i", &[&[3], &[3]]),
        ("ii->i", &[&[3, 3]]),
        ("ii->", &[&[3, 3]]),
        ("iji->j", &[&[3, 4, 3]]),
        ("iii->i", &[&[3, 3, 3]]),
        ("iij,jk->ik", &[&[3, 3, 2], &[2, 4]]),
        ("bqhd,bkhd->bhqk", &[&[2, 3, 2, 4], &[2, 5, 2, 4]]),
        ("bij,bjk->bik", &[&[2, 3, 4], &[2, 4, 5]]),
        ("bij,jk->bik", &[&[2, 3, 4], &[4, 5]]),
        ("bij,bjk->ik", &[&[2, 3, 4], &[2, 4, 5]]),
        ("ijk,jlk,m->lim", &[&[2, 3, 4], &[3, 5, 4], &[2]]),
        ("ij,jk,kl,lm->im", &[&[2, 3], &[3, 4], &[4, 2], &[2, 5]]),
        ("ijkl,kl->ij", &[&[2, 3, 4, 2], &[4, 2]]),
        ("ij,ik,il->jkl", &[&[3, 2], &[3, 4], &[3, 2]]),
        ("aB,Bc->ac", &[&[2, 3], &[3, 2]]),
        ("ij,j->i", &[&[3, 1], &[4]]),
        ("ij,ij->ij", &[&[3, 1], &[1, 4]]),
        ("i,i->", &[&[0], &[0]]),
        (",i->i", &[&[], &[3]]),
        ("->", &[&[]]),
    ] {
        check(equation, equation, shapes)?;
    }
    Ok(())
}

#[test]
fn ellipses_and_results_left_out() -> Result<()> {
    check("...ij,...jk->...ik", "abij,abjk->abik", &[&[2, 3, 2, 4], &[2, 3, 4, 2]])?;
    check("...ij,...jk->...ik", "abij,bjk->abik", &[&[2, 3, 2, 4], &[3, 4, 2]])?;
    check("...ij,...jk->...ik", "abij,abjk->abik", &[&[2, 1, 2, 4], &[1, 3, 4, 2]])?;
    check("...ij,jk->i...k", "abij,jk->iabk", &[&[2, 3, 2, 4], &[4, 2]])?;
    check("i...->...", "iab->ab", &[&[3, 2, 4]])?;
    check("...->", "ab->", &[&[2, 4]])?;
    check("...", "ab->ab", &[&[2, 4]])?;
    check("ij,jk", "ij,jk->ik", &[&[3, 4], &[4, 5]])?;
    check("ba", "ba->ab", &[&[3, 4]])?;
    check("ii", "ii->", &[&[3, 3]])?;
    check("...i,...i", "ai,ai->a", &[&[2, 4], &[2, 4]])?;
    check(" i j , j k -> i k ", "ij,jk->ik", &[&[3, 4], &[4, 5]])
}

#[test]
fn wrong_equations_are_explained() -> Result<()> {
    let x = Tensor::zeros((2, 3), tallow::DType::F32, CPU)?;
    for (equation, operands, why) in [
        ("ij,jk->ik", vec![&x], "names 2 operands, not 1"),
        ("ijk->ij", vec![&x], "3 letters do not name the axes of [2, 3]"),
        ("i->i", vec![&x], "1 letters do not name"),
        ("ij->ijj", vec![&x], "names an axis twice"),
        ("ij->ik", vec![&x], "axis 'k' is in no operand"),
        ("ii->i", vec![&x], "differ in size"),
        ("ij,jk->ik", vec![&x, &x], "axis 'j' has size 3 here and 2 there"),
        ("i1->i", vec![&x], "'1' is no axis"),
        ("......->", vec![&x], "two ellipses"),
        ("i.j->", vec![&x], "'.' is no axis"),
        ("", vec![], "names 1 operands, not 0"),
    ] {
        let text = Tensor::einsum(equation, &operands).expect_err(equation).to_string();
        assert!(text.contains(why), "{equation}: {text}");
    }
    Ok(())
}
