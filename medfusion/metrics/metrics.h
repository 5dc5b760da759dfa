// Metrics over all ranks; docs/metrics.md is the tour.
#ifndef MEDFUSION_METRICS_METRICS_H_
#define MEDFUSION_METRICS_METRICS_H_

#include "medfusion/metrics/auroc.h"                  // IWYU pragma: export
#include "medfusion/metrics/binary_classification.h"  // IWYU pragma: export
#include "medfusion/metrics/calibration.h"            // IWYU pragma: export
#include "medfusion/metrics/confusion_matrix.h"       // IWYU pragma: export
#include "medfusion/metrics/meters.h"                 // IWYU pragma: export
#include "medfusion/metrics/metric_set.h"             // IWYU pragma: export
#include "medfusion/metrics/reduce_dict.h"            // IWYU pragma: export
#include "medfusion/metrics/segmentation.h"           // IWYU pragma: export

#endif  // MEDFUSION_METRICS_METRICS_H_
