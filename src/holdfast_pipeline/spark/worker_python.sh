#!/bin/sh
# The Python of Spark's workers: see worker_python.py. HOLDFAST_PYTHON is the path of the Python of the command.
set -f
IFS=:
kept=
for each in $PYTHONPATH; do
    case $each in
        */pyspark.zip | */py4j-*.zip | */spark-core_*.jar) ;;
        *) kept=$kept${kept:+:}$each ;;
    esac
done
PYTHONPATH=$kept exec "$HOLDFAST_PYTHON" "$@"
