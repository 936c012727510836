//! Operations that users write, on the CPU: shapes, scalars, fusion with what is around them, gradients, errors.

use tallow::{CustomOp, DType, Device, Error, Result, Shape, Tensor, Var};

const CPU: &Device = &Device::Cpu;

fn error<T>(result: Result<T>) -> String {
    match result {
        Ok(_) => panic!("an error was expected"),
        Err(error) => error.to_string(),
    }
}

/// x^2 + scalar 0, with its gradient.
fn square_plus() -> CustomOp {
    CustomOp::new("square_plus")
        .cpu(|inputs, scalars, out| {
            let x = inputs[0].as_slice::<f32>()?;
            let term = scalars.first().copied().unwrap_or(0.0) as f32;
            out.as_mut_slice::<f32>()?.iter_mut().zip(x).for_each(|(out, x)| *out = x * x + term);
            Ok(())
        })
        .backward(|inputs, _, grad| Ok(vec![Some((grad * (&inputs[0] * 2.0)?)?)]))
        .build()
}

#[test]
fn it_is_an_operation_like_any_other() -> Result<()> {
    let x = Tensor::new([[1f32, 2.], [3., 4.]], CPU)?;
    let op = square_plus();
    // Of a pending map and a view, read by a map.
    let y = (op.apply(&[&(&x + 1.0)?.t()?], &[10.])? * 2.0)?;
    assert_eq!(y.to_vec2::<f32>()?, [[28., 52.], [38., 70.]]);
    assert_eq!(x.apply_op1(&op)?.to_vec2::<f32>()?, [[1., 4.], [9., 16.]]);
    assert_eq!(x.apply_op1(op.clone())?.sum_all()?.to_scalar::<f32>()?, 30.);
    assert_eq!(format!("{op:?}").split('#').next(), Some("square_plus"));
    let empty = Tensor::zeros((0, 2), DType::F32, CPU)?;
    assert_eq!(empty.apply_op1(&op)?.to_vec2::<f32>()?, Vec::<Vec<f32>>::new());
    Ok(())
}

#[test]
fn any_arity_shape_and_dtype() -> Result<()> {
    // The outer sum of three vectors, as integers.
    let op = CustomOp::new("outer_sum")
        .shape(|shapes| match shapes {
            [a, b, c] => Ok(Shape::new(&[a.elem_count(), b.elem_count(), c.elem_count()])),
            _ => Err(Error::op("outer_sum", "takes three vectors")),
        })
        .dtype(DType::I64)
        .cpu(|inputs, _, out| {
            let [a, b, c] = [inputs[0].to_vec::<f32>()?, inputs[1].to_vec::<f32>()?, inputs[2].to_vec::<f32>()?];
            let sums = a
                .iter()
                .flat_map(|a| b.iter().flat_map(|b| c.iter().map(move |c| (a + b + c) as i64)).collect::<Vec<_>>());
            out.copy_from(&sums.collect::<Vec<i64>>())
        })
        .build();
    let v = |values: &[f32]| Tensor::new(values, CPU);
    let (a, b, c) = (v(&[1., 2.])?, v(&[10.])?, v(&[100., 200., 300.])?);
    let y = a.apply_op3(&b, &c, &op)?;
    assert_eq!(y.to_vec3::<i64>()?, [[[111, 211, 311]], [[112, 212, 312]]]);
    assert!(error(a.apply_op2(&b, &op)).contains("three vectors"));
    assert!(error(op.apply(&[], &[])).contains("needs an operand"));
    Ok(())
}

#[test]
fn gradients_go_through_backward() -> Result<()> {
    let x = Var::new([1f32, -2., 3.], CPU)?;
    let op = square_plus();
    let loss = (op.apply(&[&(x.as_tensor() * 2.0)?], &[5.])?.sqr()?).sum_all()?;
    // d/dx ((2x)^2 + 5)^2 = 2 ((2x)^2 + 5) * 2 (2x) * 2
    let want: Vec<f32> = [1f32, -2., 3.].iter().map(|x| 16. * x * (4. * x * x + 5.)).collect();
    assert_eq!(loss.backward()?.get(&x).expect("a gradient").to_vec1::<f32>()?, want);
    // Twice: the gradient is made of operations.
    let first = tallow::grad(&[&x.apply_op1(&op)?], &[&x], true)?;
    assert_eq!(tallow::grad(&[&first[0]], &[&x], false)?[0].to_vec1::<f32>()?, [2.; 3]);
    assert!(!x.apply_op1_no_bwd(&op)?.is_tracked());
    let silent = CustomOp::new("silent").cpu(|_, _, out| out.copy_from(&[1f32; 3])).build();
    let message = error(x.apply_op1(&silent)?.backward());
    assert!(message.contains("'silent' has no gradient"), "{message}");
    let wrong =
        CustomOp::new("wrong").cpu(|_, _, out| out.copy_from(&[1f32; 3])).backward(|_, _, _| Ok(vec![])).build();
    assert!(error(x.apply_op1(&wrong)?.backward()).contains("'wrong' gives 0 gradients for 1 operands"));
    Ok(())
}

/// A gradient of another shape or dtype is the operation's fault, and it is named; a stretched one is summed.
#[test]
fn gradients_must_fit_their_operands() -> Result<()> {
    let x = Var::new([1f32, -2., 3.], CPU)?;
    let grad_of = |grad: Tensor| {
        let op = CustomOp::new("skewed").cpu(|_, _, out| out.copy_from(&[1f32; 3]));
        x.apply_op1(op.backward(move |_, _, _| Ok(vec![Some(grad.clone())])).build())?.backward()
    };
    let stretched = grad_of(Tensor::ones((2, 3), DType::F32, CPU)?)?;
    assert_eq!(stretched.get(&x).expect("a gradient").to_vec1::<f32>()?, [2.; 3]);
    for (dims, dtype, shown) in
        [(vec![7], DType::F32, "[7], F32"), (vec![], DType::F32, "[], F32"), (vec![3], DType::F16, "[3], F16")]
    {
        let message = error(grad_of(Tensor::ones(dims, dtype, CPU)?));
        let want =
            format!("'skewed' gives operand 0, which is Tensor[[3], F32, cpu], the gradient Tensor[{shown}, cpu]");
        assert!(message.contains(&want), "{message}");
    }
    Ok(())
}

#[test]
fn in_place_it_replaces_the_value() -> Result<()> {
    let x = Tensor::new([1f32, 2.], CPU)?;
    let same = x.clone();
    x.inplace_op1(square_plus())?;
    assert_eq!(same.to_vec1::<f32>()?, [1., 4.]);
    let row =
        CustomOp::new("row").shape(|_| Ok(Shape::new(&[1, 2]))).cpu(|_, _, out| out.copy_from(&[0f32; 2])).build();
    assert!(error(x.inplace_op1(&row)).contains("[1, 2], which cannot replace [2]"));
    Ok(())
}

#[test]
fn errors_and_panics_come_up_as_errors() -> Result<()> {
    let x = Tensor::new([1f32, 2.], CPU)?;
    let y = (&x + 1.0)?;
    let failing = CustomOp::new("failing").cpu(|_, _, _| Err(Error::op("failing", "no luck"))).build();
    let lost = y.apply_op1(&failing)?;
    let message = error(lost.to_vec1::<f32>());
    assert!(message.contains("'failing'") && message.contains("no luck"), "{message}");
    // It stays an error; other values are as they were.
    assert!(lost.to_vec1::<f32>().is_err());
    assert_eq!(y.to_vec1::<f32>()?, [2., 3.]);
    let panicking = CustomOp::new("panicking").cpu(|inputs, _, _| panic!("at {:?}", inputs[0].dims)).build();
    let message = error(x.apply_op1(&panicking)?.to_vec1::<f32>());
    assert!(message.contains("'panicking' panicked: at [2]"), "{message}");
    let mistyped = CustomOp::new("mistyped").cpu(|inputs, _, _| inputs[0].as_slice::<f64>().map(|_| ())).build();
    assert!(error(x.apply_op1(&mistyped)?.to_vec1::<f32>()).contains("the operand is F32, not F64"));
    let elsewhere = CustomOp::new("elsewhere").wgsl_elements("fn element(i: u32) {}").build();
    let message = error(x.apply_op1(&elsewhere));
    assert!(message.contains("'elsewhere' has WGSL") && message.contains("a CPU closure"), "{message}");
    Ok(())
}
