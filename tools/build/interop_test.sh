#!/usr/bin/env bash
# usage: interop_test.sh PYTHON TORCHRUN PROGRAM ARGUMENT...
export MEDFUSION_PYTHON=$PWD/$1 MEDFUSION_TORCHRUN=$PWD/$2
shift 2
exec "$MEDFUSION_PYTHON" "$@"
