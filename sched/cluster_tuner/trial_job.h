// Builds the AdaptDLJob that runs a trial in a cluster.
//
// A trial's job is named STUDY-N, and its labels identify the study and the trial. The program receives the parameters
// in the same way as in a local run (command_template.h). The program's results file (adaptdl/report.h) is its standard
// output, because a job's standard output can be read while the job runs.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "kube/jobs/submission.h"
#include "tune/study/space.h"

namespace adaptdl::sched::tune {

// Labels of a trial's job.
inline constexpr char kStudyLabel[] = "adaptdl/study";
inline constexpr char kTrialLabel[] = "adaptdl/trial";
// A random value that distinguishes a study from other studies with the same name.
inline constexpr char kStudyIdLabel[] = "adaptdl/study-id";

struct TrialJobPlan {
  std::string study, study_id;
  nlohmann::json job;                  // from a job file; its first container runs the program; its name is ignored
  kube::SubmissionOptions submission;  // for all jobs; `name`, `arguments` and `claim` are ignored
  std::vector<std::string> command;    // see command_template.h
};

std::string trial_job_name(const std::string& study, int number);
// Returns the number of the trial that the job belongs to, or nullopt if the job has no valid trial label.
std::optional<int> trial_of(const nlohmann::json& job);
// Returns the label selector for all jobs of the study.
std::string trial_selector(const std::string& study_id);

// Returns a trial's job and its volume claim. The claim's name depends only on the study and the trial. Throws
// UsageError in the same cases as make_submission().
kube::Submission make_trial_job(const TrialJobPlan& plan, int number, const Values& values);

// Throws UsageError if the study's name cannot be the beginning of a job name.
void check_job_names(const std::string& study);

}  // namespace adaptdl::sched::tune
