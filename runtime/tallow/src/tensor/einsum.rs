//! Einstein summation: products and sums by named axes.
//!
//! Operands are contracted two at a time, the pair with the smallest result first. A pair becomes a batched matrix product:
//! axes that both have and that are needed later are the batch, axes that both have and nobody else needs are summed over.

use super::Tensor;
use crate::{Error, Result, Shape};
use tallow_graph::MAX_RANK;

/// The name of an axis: a letter, or a place of the ellipsis counted from its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Label {
    /// `...`: 0 is the last of its axes. Sorts before letters, later places first; see [`Equation::parse`].
    Rest(usize),
    /// `a` to `z`, `A` to `Z`.
    Letter(char),
}

fn fail(equation: &str, why: impl std::fmt::Display) -> Error {
    Error::op("einsum", format!("'{equation}': {why}"))
}

/// The names of an operand's axes as written: letters, and `None` for the ellipsis.
fn names(equation: &str, text: &str) -> Result<Vec<Option<char>>> {
    let mut list = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("...") {
            if list.contains(&None) {
                return Err(fail(equation, "one operand has two ellipses"));
            }
            list.push(None);
            rest = after;
            continue;
        }
        match c {
            'a'..='z' | 'A'..='Z' => list.push(Some(c)),
            ' ' => {}
            other => return Err(fail(equation, format_args!("'{other}' is no axis: letters and ... name axes"))),
        }
        rest = &rest[c.len_utf8()..];
    }
    Ok(list)
}

/// Names for `rank` axes: the ellipsis takes those that have no letter.
fn labels(equation: &str, names: &[Option<char>], rank: usize, shape: &Shape) -> Result<Vec<Label>> {
    let letters = names.iter().flatten().count();
    let open = names.contains(&None);
    let Some(rest) = rank.checked_sub(letters).filter(|&rest| open || rest == 0) else {
        return Err(fail(equation, format_args!("{letters} letters do not name the axes of {shape:?}")));
    };
    let expand = |name: &Option<char>| match name {
        Some(letter) => vec![Label::Letter(*letter)],
        None => (0..rest).rev().map(Label::Rest).collect(),
    };
    Ok(names.iter().flat_map(expand).collect())
}

/// A tensor whose axes have names, each at most once.
struct Term {
    tensor: Tensor,
    labels: Vec<Label>,
}

impl Term {
    fn size(&self, label: Label) -> Option<usize> {
        self.labels.iter().position(|&l| l == label).map(|axis| self.tensor.dims()[axis])
    }

    fn has(&self, label: Label) -> bool {
        self.labels.contains(&label)
    }

    /// A name that occurs twice means the diagonal of its two axes.
    fn new(equation: &str, tensor: &Tensor, mut labels: Vec<Label>) -> Result<Term> {
        let mut tensor = tensor.clone();
        while let Some((first, second)) = repeated(&labels) {
            if tensor.dims()[first] != tensor.dims()[second] {
                let message = format!("one name for two axes of {:?} that differ in size", tensor.shape());
                return Err(fail(equation, message));
            }
            tensor = tensor.diagonal(0, first, second)?;
            let label = labels.remove(second);
            labels.remove(first);
            labels.push(label);
        }
        Ok(Term { tensor, labels })
    }

    /// Sums over the axes that `keep` does not want.
    fn sum(self, keep: impl Fn(Label) -> bool) -> Result<Term> {
        let gone: Vec<usize> = (0..self.labels.len()).filter(|&a| !keep(self.labels[a])).collect();
        if gone.is_empty() {
            return Ok(self);
        }
        let labels = self.labels.into_iter().filter(|&l| keep(l)).collect();
        Ok(Term { tensor: self.tensor.sum(gone)?, labels })
    }

    /// The axes in this order; those that the term lacks have size 1.
    fn ordered(&self, order: &[Label]) -> Result<Tensor> {
        let place = |label: &Label| self.labels.iter().position(|l| l == label);
        let present: Vec<usize> = order.iter().filter_map(place).collect();
        let sizes: Shape = order.iter().map(|&label| self.size(label).unwrap_or(1)).collect();
        self.tensor.permute(present)?.reshape(sizes)
    }
}

fn repeated(labels: &[Label]) -> Option<(usize, usize)> {
    (0..labels.len()).find_map(|b| labels[..b].iter().position(|&l| l == labels[b]).map(|a| (a, b)))
}

/// The product of the sizes.
fn count(sizes: &[usize]) -> usize {
    sizes.iter().fold(1, |n, &d| n.saturating_mul(d))
}

/// The product of two terms, summed over what `keep` does not want.
fn product(a: Term, b: Term, keep: impl Fn(Label) -> bool) -> Result<Term> {
    let a = a.sum(|l| keep(l) || b.has(l))?;
    let b = b.sum(|l| keep(l) || a.has(l))?;
    let shared = |l: &&Label| b.has(**l);
    let of = |wanted: bool| a.labels.iter().filter(shared).copied().filter(|&l| keep(l) == wanted).collect::<Vec<_>>();
    let (batch, summed) = (of(true), of(false));
    let left: Vec<Label> = a.labels.iter().copied().filter(|&l| !b.has(l)).collect();
    let right: Vec<Label> = b.labels.iter().copied().filter(|&l| !a.has(l)).collect();
    let labels: Vec<Label> = [batch.as_slice(), &left, &right].concat();
    if labels.len() > MAX_RANK {
        return Err(Error::op("einsum", format!("a product would have {} axes, more than {MAX_RANK}", labels.len())));
    }
    if summed.is_empty() {
        return Ok(Term { tensor: a.ordered(&labels)?.broadcast_mul(&b.ordered(&labels)?)?, labels });
    }
    // Axes of size 1 stretch to the other operand's.
    let sizes = |list: &[Label]| -> Vec<usize> {
        let size = |&l: &Label| match (a.size(l), b.size(l)) {
            (Some(1), Some(n)) | (Some(n), _) | (None, Some(n)) => n,
            (None, None) => 1,
        };
        list.iter().map(size).collect()
    };
    let (outer, inner, rows, cols) = (sizes(&batch), sizes(&summed), sizes(&left), sizes(&right));
    let wide = |term: &Term, order: [&[Label]; 3], dims: [&[usize]; 3]| -> Result<Tensor> {
        let tensor = term.ordered(&order.concat())?.broadcast_as(dims.concat())?;
        tensor.reshape((count(dims[0]), count(dims[1]), count(dims[2])))
    };
    let x = wide(&a, [&batch, &left, &summed], [&outer, &rows, &inner])?;
    let y = wide(&b, [&batch, &summed, &right], [&outer, &inner, &cols])?;
    Ok(Term { tensor: x.matmul(&y)?.reshape([outer, rows, cols].concat())?, labels })
}

impl Tensor {
    /// Einstein summation: names the axes of each operand and of the result by letters. Axes of one name are walked
    /// together; those that the result does not name are summed over. `...` stands for any further axes, which
    /// broadcast. A letter twice in one operand means its diagonal. Without `->`, the result has the ellipsis first, then
    /// the letters that occur once, in alphabetical order (capitals first).
    ///
    /// ```
    /// use tallow::{DType, Device, Tensor};
    /// let q = Tensor::ones((2, 5, 4, 8), DType::F32, &Device::Cpu)?;
    /// let k = Tensor::ones((2, 7, 4, 8), DType::F32, &Device::Cpu)?;
    /// let scores = Tensor::einsum("bqhd,bkhd->bhqk", &[&q, &k])?;
    /// assert_eq!(scores.dims(), [2, 4, 5, 7]);
    /// # Ok::<(), tallow::Error>(())
    /// ```
    ///
    /// # Errors
    /// An equation that does not name the operands' axes, a result that names an axis of no operand or one twice, sizes
    /// that differ (and are not 1), operands of different dtypes or devices.
    pub fn einsum<A: AsRef<Tensor>>(equation: &str, operands: &[A]) -> Result<Tensor> {
        let (inputs, output) = match equation.split_once("->") {
            Some((inputs, output)) => (inputs, Some(output)),
            None => (equation, None),
        };
        let inputs: Vec<Vec<Option<char>>> =
            inputs.split(',').map(|text| names(equation, text)).collect::<Result<_>>()?;
        if inputs.len() != operands.len() {
            return Err(fail(equation, format_args!("it names {} operands, not {}", inputs.len(), operands.len())));
        }
        let mut terms = Vec::with_capacity(operands.len());
        for (names, operand) in inputs.iter().zip(operands) {
            let tensor = operand.as_ref();
            let labels = labels(equation, names, tensor.rank(), tensor.shape())?;
            terms.push(Term::new(equation, tensor, labels)?);
        }
        check_sizes(equation, &terms)?;
        // The axes of the longest ellipsis.
        let mut rest: Vec<Label> =
            terms.iter().flat_map(|t| &t.labels).copied().filter(|l| matches!(l, Label::Rest(_))).collect();
        rest.sort_unstable_by(|a, b| b.cmp(a));
        rest.dedup();
        let wanted: Vec<Label> = match output {
            Some(text) => {
                let name = |name: Option<char>| name.map_or_else(|| rest.clone(), |c| vec![Label::Letter(c)]);
                names(equation, text)?.into_iter().flat_map(name).collect()
            }
            None => {
                let mut letters: Vec<char> = inputs.iter().flatten().flatten().copied().collect();
                letters.sort_unstable();
                let once = letters.iter().filter(|&c| letters.iter().filter(|&d| d == c).count() == 1);
                rest.iter().copied().chain(once.map(|&c| Label::Letter(c))).collect()
            }
        };
        if repeated(&wanted).is_some() {
            return Err(fail(equation, "the result names an axis twice"));
        }
        if let Some(Label::Letter(c)) = wanted.iter().find(|&&l| !terms.iter().any(|t| t.has(l))) {
            return Err(fail(equation, format_args!("the result's axis '{c}' is in no operand")));
        }
        while terms.len() > 1 {
            let (i, j) = cheapest(&terms, &wanted);
            let b = terms.swap_remove(j);
            let a = terms.swap_remove(i);
            let joined = product(a, b, |l| wanted.contains(&l) || terms.iter().any(|t| t.has(l)))?;
            terms.push(joined);
        }
        let last = terms.pop().ok_or_else(|| fail(equation, "there are no operands"))?;
        let result = last.sum(|l| wanted.contains(&l))?.ordered(&wanted)?;
        // Another order or a diagonal of one operand is a view of it so far.
        operands.iter().try_fold(result, |result, operand| result.apart_from(operand.as_ref(), "einsum"))
    }
}

/// Axes of one name have one size, or 1.
fn check_sizes(equation: &str, terms: &[Term]) -> Result<()> {
    let mut seen: Vec<(Label, usize)> = Vec::new();
    for (label, size) in terms.iter().flat_map(|t| t.labels.iter().copied().zip(t.tensor.dims().iter().copied())) {
        match seen.iter_mut().find(|(l, _)| *l == label) {
            None => seen.push((label, size)),
            Some((_, known)) if *known == size || size == 1 => {}
            Some((_, known)) if *known == 1 => *known = size,
            Some((_, known)) => {
                let name = if let Label::Letter(c) = label { c.to_string() } else { "...".into() };
                return Err(fail(equation, format_args!("axis '{name}' has size {known} here and {size} there")));
            }
        }
    }
    Ok(())
}

/// The two terms, i < j, whose product is smallest.
fn cheapest(terms: &[Term], wanted: &[Label]) -> (usize, usize) {
    let result = |i: usize, j: usize| {
        let (a, b) = (&terms[i], &terms[j]);
        let later =
            |l: Label| wanted.contains(&l) || terms.iter().enumerate().any(|(t, term)| t != i && t != j && term.has(l));
        let own = a.labels.iter().copied().chain(b.labels.iter().copied().filter(|&l| !a.has(l)));
        let size = |l: Label| a.size(l).unwrap_or(1).max(b.size(l).unwrap_or(1));
        count(&own.filter(|&l| later(l)).map(size).collect::<Vec<_>>())
    };
    let pairs = (0..terms.len()).flat_map(|i| (i + 1..terms.len()).map(move |j| (i, j)));
    pairs.min_by_key(|&(i, j)| result(i, j)).unwrap_or((0, 1))
}
