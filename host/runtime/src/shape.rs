//! Checks the shape of a component before it is compiled. Pure.
//!
//! A few bytes can make a compiler use minutes and gigabytes, and its cost grows with the size of
//! single functions. This module does not validate the component: the compiler does.

use wasmparser::{Parser, Payload};

/// The limits on a component. The largest known functions, interpreters of scripting languages,
/// have about 200 KiB.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// Maximum size of one function's body, in bytes.
    pub body_bytes_max: u64,
    /// Maximum number of local variables of one function.
    pub locals_max: u64,
    /// Maximum number of functions with a body, in all modules.
    pub functions_max: u64,
    /// Maximum size of all bodies, in bytes.
    pub code_bytes_max: u64,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape {
            body_bytes_max: 512 << 10,
            locals_max: 4_000,
            functions_max: 100_000,
            code_bytes_max: 32 << 20,
        }
    }
}

impl Shape {
    /// Checks that a component is within the limits.
    ///
    /// # Errors
    /// What is too large, with the limit.
    pub fn check(&self, bytes: &[u8]) -> Result<(), String> {
        let (mut functions, mut code) = (0, 0);
        let at_most = |what: &str, count: u64, max: u64| match count > max {
            true => Err(format!("{count} {what}: at most {max}")),
            false => Ok(()),
        };
        for payload in Parser::new(0).parse_all(bytes) {
            // Invalid code is reported by the compiler, which stops early.
            let Ok(Payload::CodeSectionEntry(body)) = payload else { continue };
            let size = body.range().len() as u64;
            functions += 1;
            code += size;
            at_most("bytes in one function", size, self.body_bytes_max)?;
            at_most("functions", functions, self.functions_max)?;
            at_most("bytes of code", code, self.code_bytes_max)?;
            let Ok(groups) = body.get_locals_reader() else { continue };
            let locals = groups.into_iter().map(|group| group.map_or(0, |(count, _)| count.into()));
            at_most("local variables in one function", locals.sum(), self.locals_max)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The section of a component that contains a module.
    const CORE_MODULE: u8 = 1;

    fn push_leb(out: &mut Vec<u8>, mut value: usize) {
        while value >= 0x80 {
            out.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        out.push(value as u8);
    }

    /// A section, or any other part of a binary that is preceded by its size.
    fn section(id: u8, payload: &[u8]) -> Vec<u8> {
        let mut out = vec![id];
        push_leb(&mut out, payload.len());
        out.extend(payload);
        out
    }

    /// A component around a core module with one function with this number of locals and `nop`s.
    fn component(locals: u32, nops: usize) -> Vec<u8> {
        let mut body = vec![1];
        push_leb(&mut body, locals as usize);
        body.push(0x7f);
        body.extend(std::iter::repeat_n(0x01, nops));
        body.push(0x0b);
        let mut code = vec![1];
        push_leb(&mut code, body.len());
        code.extend(body);
        let mut module = b"\0asm\x01\0\0\0".to_vec();
        module.extend(section(1, &[1, 0x60, 0, 0]));
        module.extend(section(3, &[1, 0]));
        module.extend(section(10, &code));
        let mut component = b"\0asm\x0d\0\x01\0".to_vec();
        component.extend(section(CORE_MODULE, &module));
        component
    }

    #[test]
    fn a_function_that_a_compiler_would_choke_on_is_refused() {
        let shape = Shape::default();
        assert_eq!(shape.check(&component(4_000, 1_000)), Ok(()));
        let cases = [
            (component(4_001, 1), "4001 local variables in one function: at most 4000"),
            (component(1, 600 << 10), "bytes in one function: at most 524288"),
        ];
        for (bytes, words) in cases {
            let said = shape.check(&bytes).unwrap_err();
            assert!(said.contains(words), "{said}");
        }
        let few = Shape { functions_max: 0, ..Shape::default() };
        assert_eq!(few.check(&component(1, 1)).unwrap_err(), "1 functions: at most 0");
        let small = Shape { code_bytes_max: 100, ..Shape::default() };
        assert_eq!(small.check(&component(1, 10)), Ok(()));
        let said = small.check(&component(1, 200)).unwrap_err();
        assert!(said.ends_with("bytes of code: at most 100"), "{said}");
        // Invalid code is left to the compiler.
        assert_eq!(shape.check(b"\0asm\x0d\0\x01\0\xff\xff"), Ok(()));
    }
}
