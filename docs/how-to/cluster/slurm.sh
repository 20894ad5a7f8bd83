#!/bin/bash
#SBATCH --job-name=holdfast
#SBATCH --array=1-8
#SBATCH --cpus-per-task=4
#SBATCH --mem=8G
#SBATCH --time=02:00:00
#SBATCH --output=holdfast-%A-%a.log

# Submit with `sbatch slurm.sh`. When all tasks are finished, run the last command of this file without
# --part on any machine: it reads the cells of all parts and writes the tables.

set -euo pipefail

model=${MODEL:-net.onnx}
data=${DATA:-data}
store=${STORE:-/scratch/$USER/cells}

holdfast noise "$model" "$data" --store "$store" --jobs "${SLURM_CPUS_PER_TASK:-0}" \
  --part "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT"
